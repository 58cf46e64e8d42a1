/** Steps of a plan that hold steps: the twin of webrt/subplans.py. */

const isText = (x) => typeof x === "string";
const isFlag = (x) => typeof x === "boolean";
const are = (xs, is) => Array.isArray(xs) && xs.every(is);

export const isControl = (step) => step.kind === "branch" || step.kind === "loop";

/** The steps, each followed by those within it. */
export function walk(steps) {
  return steps.flatMap((step) => [step, ...(isControl(step) ? step.bodies.flatMap((b) => walk(b.steps)) : [])]);
}

/** A sub-plan as a plan of its own. */
export function within(plan, sub) {
  const { kernels, constants, placement, target, meta, version } = plan;
  return { ...sub, kernels, constants, placement, target, meta, version, work: [] };
}

function rolesOf(step) {
  if (step.kind === "branch") return new Set();
  return new Set([...step.state.map(([, b]) => b), ...step.elements.map(([, b]) => b), step.number]);
}

/** The values around it that are copied into a step's bodies: first states and sequences. */
export function copied(step) {
  return step.kind === "branch" ? [] : [...step.state, ...step.elements].map(([a]) => a);
}

/** The inputs of a body that are values of the same name around it. */
export function captured(step, body) {
  const roles = rolesOf(step);
  return body.inputs.filter((v) => !roles.has(v.name));
}

/** The values around it that decide what a step does. */
export const deciding = (step) => [step.trips ?? "", step.condition].filter((n) => n);

/** The values around it that a step needs. */
export function operands(step) {
  const inner = step.bodies.flatMap((body) => captured(step, body).map((v) => v.name));
  return [...new Set([...deciding(step), ...copied(step), ...inner])];
}

/** Whether a step has as many bodies, names and flags as its kind needs, each of its type. */
export function isWellFormed(step) {
  if (!Array.isArray(step.bodies) || !are(step.outputs, isText) || !isText(step.condition)) return false;
  const counts = step.bodies.map((b) => b.outputs.length);
  const { outputs } = step;
  if (step.kind === "branch") return step.condition !== "" && counts.length === 2 && counts.every((n) => n === outputs.length);
  const pairs = are(step.state, (s) => are(s, isText) && s.length === 2);
  const triples = are(step.elements, (e) => Array.isArray(e) && e.length === 3
    && isText(e[0]) && isText(e[1]) && isFlag(e[2]));
  if (!pairs || !triples || !are(step.lines, isFlag) || ![step.trips, step.number].every(isText)) return false;
  if (!isFlag(step.again)) return false;
  const made = step.state.length + step.lines.length;
  return counts.length === 1 && outputs.length === made && counts[0] === made + Number(step.again);
}
