/** The page's WebGPU device. */

import { NoAdapter } from "./common.js";

const RAISED = [
  "maxStorageBuffersPerShaderStage", "maxUniformBufferBindingSize", "maxStorageBufferBindingSize", "maxBufferSize",
  "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupsPerDimension", "maxTextureDimension2D",
];
const FEATURES = ["subgroups", "shader-f16", "timestamp-query"];

// What to do in a browser without the interface ("api"), and in one that has it and finds no adapter; by a word of its
// user agent, the first that is in it.
const HOW = [
  ["Firefox/", {
    api: "use Firefox 141 or newer on Windows, 145 or newer on a Mac; elsewhere set dom.webgpu.enabled in about:config",
    adapter: "see about:support, \"Graphics\", for what blocks it; set dom.webgpu.enabled in about:config",
  }],
  ["Linux", {
    api: "use Chrome 113 or newer and switch on chrome://flags/#enable-unsafe-webgpu",
    adapter: "switch on \"graphics acceleration\" in the settings, chrome://flags/#enable-unsafe-webgpu and "
      + "chrome://flags/#enable-vulkan; chrome://gpu says what blocks it",
  }],
  ["Chrome/", {
    api: "use Chrome or Edge 113 or newer",
    adapter: "switch on \"graphics acceleration\" in the settings; chrome://gpu says what blocks it",
  }],
  ["Safari/", {
    api: "use Safari 26 or newer (macOS 26, iOS 26), or switch on WebGPU among the feature flags",
    adapter: "switch on WebGPU among the feature flags",
  }],
  ["", { api: "use a current Chrome, Edge, Firefox or Safari", adapter: "switch on hardware acceleration" }],
];

function howTo(what) {
  if (what === "api" && !globalThis.isSecureContext) return "the page has to come over https or from localhost";
  const agent = globalThis.navigator?.userAgent ?? "";
  return HOW.find(([word]) => agent.includes(word))[1][what];
}

let shared = null;

/** A device with all that the adapter offers of the limits and features that plans ask for. Raises NoAdapter. */
export async function openDevice() {
  if (!globalThis.navigator?.gpu) throw new NoAdapter(`this browser has no WebGPU here: ${howTo("api")}`);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new NoAdapter(`the browser found no WebGPU adapter: ${howTo("adapter")}`);
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
