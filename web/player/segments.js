/** A plan's steps in segments: the twin of webrt/runtime/segments.py. */

/** The variables that a fed or made value gives. */
export function binds(plan, info) {
  const named = (info.shape ?? []).filter((d) => Array.isArray(d)).map(([k]) => plan.dims[k]);
  const elements = Array.from({ length: info.elements }, (_, k) => `in:${info.name}[${k}]`);
  return [...named.filter(([op]) => op === "var").map(([, name]) => name), ...elements];
}

/**
 * Consecutive steps of one kind, or a branch or a loop alone: [{ kind: "device" | "host" | "read" | "branch" | "loop",
 * steps }]. Operands of a host segment are read
 * before it and its results are uploaded after it, so a host step that reads a place that the segment fills, or a size
 * that it makes, starts another one.
 */
export function segmentsOf(plan) {
  const madeBy = plan.steps.map((s) => (s.kind === "host" ? variablesOf(plan, s) : []));
  const late = dependence(plan, new Set(madeBy.flat()));
  const out = [];
  let now = null;
  plan.steps.forEach((step, i) => {
    const kind = step.kind === "dispatch" || step.kind === "copy" ? "device" : step.kind;
    const alone = kind === "branch" || kind === "loop";
    if (alone || out.at(-1)?.kind !== kind || (kind === "host" && needs(plan, step, now, late))) {
      out.push({ kind, steps: [] });
      now = { names: new Set(), places: new Set(), variables: new Set() };
    }
    out.at(-1).steps.push(i);
    if (kind !== "host") return;
    for (const name of step.outputs.filter((n) => n)) {
      now.names.add(name);
      now.places.add(String(plan.values.get(name).place));
    }
    madeBy[i].forEach((name) => now.variables.add(name));
  });
  return out;
}

/** Whether a host step reads a place or a size that the steps before it in the segment make, and not just a value. */
function needs(plan, step, made, late) {
  const operands = [...step.inputs, ...step.outer].filter((n) => n && !made.names.has(n));
  return operands.map((n) => plan.values.get(n)).some(({ place, shape, contents }) => {
    if (place !== null && made.places.has(String(place))) return true;
    const sizes = [...(shape ?? []), ...(contents ?? [])].filter((d) => Array.isArray(d));
    return sizes.some(([k]) => [...(late.get(k) ?? [])].some((name) => made.variables.has(name)));
  });
}

function variablesOf(plan, step) {
  return step.outputs.filter((n) => n).flatMap((n) => binds(plan, plan.values.get(n)));
}

/** Of each instruction of the size program, which of these variables it depends on, where there are some. */
function dependence(plan, variables) {
  const out = new Map();
  if (!variables.size) return out;
  plan.dims.forEach(([op, ...args], k) => {
    const own = op === "var" ? args.filter((name) => variables.has(name)) : [];
    const found = new Set(own);
    for (const a of args) if (Array.isArray(a)) (out.get(a[0]) ?? []).forEach((name) => found.add(name));
    if (found.size) out.set(k, found);
  });
  return out;
}
