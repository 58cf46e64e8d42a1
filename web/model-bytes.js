/** What can be told of an ONNX model's bytes without its compiler: protobuf's outermost fields. */

const GRAPH = 7;
const [VARINT, EIGHT_BYTES, LENGTH, GROUP, FOUR_BYTES] = [0, 1, 2, 3, 5];

/** Why these bytes are no ONNX model, in words that follow its name; "" where only the compiler can tell. */
export function whyNoModel(bytes) {
  if (bytes.length === 0) return "is empty (zero bytes)";
  let graph = false;
  for (let at = 0; at < bytes.length;) {
    const key = varint(bytes, at);
    const [field, kind] = [Math.floor(key.value / 8), key.value % 8];
    if (kind === GROUP && field > 0) return "";
    const start = key.next;
    if (kind === VARINT) at = varint(bytes, start).next;
    else if (kind === EIGHT_BYTES) at = start + 8;
    else if (kind === FOUR_BYTES) at = start + 4;
    else if (kind === LENGTH) at = lengthAt(bytes, start);
    else at = Infinity;
    if (field === 0 || at > bytes.length) return "is no ONNX model, or is cut short";
    graph ||= field === GRAPH && kind === LENGTH;
  }
  return graph ? "" : "is no ONNX model: it has no graph";
}

/** Where a field ends that tells its own length. */
function lengthAt(bytes, at) {
  const { value, next } = varint(bytes, at);
  return next + value;
}

/** A number of at most ten bytes, of seven bits each; `next` is Infinity where it does not end. */
function varint(bytes, at) {
  let value = 0;
  for (let i = 0; i < 10 && at + i < bytes.length; i += 1) {
    value += (bytes[at + i] % 128) * 128 ** i;
    if (bytes[at + i] < 128) return { value, next: at + i + 1 };
  }
  return { value: 0, next: Infinity };
}
