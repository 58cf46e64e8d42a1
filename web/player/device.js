/** The page's WebGPU device. */

import { NoAdapter } from "./common.js";

const RAISED = [
  "maxStorageBuffersPerShaderStage", "maxUniformBufferBindingSize", "maxStorageBufferBindingSize", "maxBufferSize",
  "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupsPerDimension", "maxTextureDimension2D",
];
const FEATURES = ["subgroups", "shader-f16", "timestamp-query"];

let shared = null;

/** A device with all that the adapter offers of the limits and features that plans ask for. Raises NoAdapter. */
export async function openDevice() {
  if (!globalThis.navigator?.gpu) {
    throw new NoAdapter("this browser has no WebGPU here; use a current Chrome, Edge, Firefox or Safari, over https");
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new NoAdapter("the browser found no WebGPU adapter; switch on hardware acceleration");
  const limits = RAISED.filter((name) => adapter.limits[name] !== undefined);
  try {
    return await adapter.requestDevice({
      requiredFeatures: FEATURES.filter((f) => adapter.features.has(f)),
      requiredLimits: Object.fromEntries(limits.map((name) => [name, adapter.limits[name]])),
    });
  } catch (e) {
    throw new NoAdapter(`the adapter gives no device (${e.message}); load the page again`);
  }
}

/** The device that sessions share unless one is given; it goes when the last of them is released. */
export async function shareDevice() {
  shared ??= { device: openDevice(), users: 0 };
  const mine = shared;
  const forget = () => { if (shared === mine) shared = null; };
  mine.users += 1;
  try {
    const device = await mine.device;
    device.lost.then(forget);
    const leave = () => {
      mine.users -= 1;
      if (mine.users === 0) {
        forget();
        device.destroy();
      }
    };
    return { device, leave };
  } catch (e) {
    forget();
    throw e;
  }
}
