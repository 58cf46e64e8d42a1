/** Which of a dispatch's alternatives runs, and what it reads through textures: the twin of webrt/runtime/choose.py. */

import { TargetError, lacks } from "./common.js";
import { resolve } from "./dims.js";
import { WIDTH } from "./textures.js";
import { bucketOf } from "./tuning.js";

/** The kernels that a plan's dispatches may run on a target. Raises TargetError where one has none. */
export class Choices {
  #found = new Map();
  #unknown;

  /**
   * `name` is a step for people; `refused` the kernels that the device's compiler refused, with what it said; `tuning`
   * says which of those that may run is the fastest.
   */
  constructor(plan, target, name, refused = new Map(), tuning = null) {
    Object.assign(this, { plan, target, name, refused, tuning });
    this.#unknown = plan.dims.map(() => null);
    plan.steps.forEach((s, i) => s.kind === "dispatch" && this.#found.set(i, this.#candidates(s)));
  }

  /** More kernels were refused. The first step that has no alternative left, or null. */
  refresh() {
    for (const i of this.#found.keys()) {
      try {
        this.#found.set(i, this.#candidates(this.plan.steps[i]));
      } catch (e) {
        if (!(e instanceof TargetError)) throw e;
        return i;
      }
    }
    return null;
  }

  /** The kernel of a dispatch, unless sizes decide for another; undefined for other steps. */
  first(index) {
    const { alternatives } = this.plan.steps[index];
    return alternatives?.[this.#tuned(index, this.#unknown) ?? this.#found.get(index)[0]][0];
  }

  /**
   * The alternative to take at these sizes: the fastest, where that was measured, else the first that applies. null while
   * that is not known.
   */
  alternative(index, values) {
    const tuned = this.#tuned(index, values);
    return tuned === null ? this.#default(index, values) : this.plan.steps[index].alternatives[tuned];
  }

  /** All alternatives that may run at these sizes, the default first; none while one of these is not known. */
  options(index, values) {
    const step = this.plan.steps[index];
    const applies = step.alternatives.map(([kernel], i) => this.#mayRun(kernel) && this.#applies(step, i, values));
    return applies.includes(null) ? [] : step.alternatives.map((_, i) => i).filter((i) => applies[i]);
  }

  /**
   * What a measurement of these alternatives is kept under, [hashes, bucket]; null while sizes are not known, and where
   * there is nothing to choose.
   */
  key(index, options, values) {
    const { alternatives, params } = this.plan.steps[index];
    const hashes = options.map((i) => this.plan.kernels[alternatives[i][0]].hash);
    if (hashes.length < 2 || new Set(hashes).size !== hashes.length) return null;
    const sizes = [...alternatives[options[0]].slice(1), ...params].map((x) => resolve(x, values));
    return sizes.includes(null) ? null : [hashes, bucketOf(sizes)];
  }

  #mayRun(kernel) {
    return !this.refused.has(kernel) && !lacks(this.target, this.plan.kernels[kernel].requires);
  }

  #tuned(index, values) {
    if (!this.tuning || !(this.plan.steps[index].alternatives?.length > 1)) return null;
    const options = this.options(index, values);
    const key = this.key(index, options, values);
    const chosen = key && this.tuning.table.chosen(...key);
    if (chosen === null) return null;
    const made = options[key[0].indexOf(chosen)];
    const groups = this.plan.steps[index].alternatives[made].slice(1).map((g) => resolve(g, values));
    const most = this.target.limits.maxComputeWorkgroupsPerDimension;
    return groups.every((g) => g !== null && g <= most) ? made : null;
  }

  /** The alternatives that may be taken at some sizes; while there is time to measure, all that may run. */
  #reachable(index) {
    const tuned = this.#tuned(index, this.#unknown);
    if (tuned !== null) return [tuned];
    const found = this.#found.get(index);
    if (!this.tuning) return found;
    const { alternatives } = this.plan.steps[index];
    const hashes = alternatives.map(([kernel]) => this.plan.kernels[kernel].hash);
    const mentioned = this.tuning.table.mentions(new Set(hashes));
    const others = alternatives.map((_, i) => i).filter((i) => this.#mayRun(alternatives[i][0])
      && (this.tuning.budget > 0 || mentioned.has(hashes[i])));
    return [...found, ...others];
  }

  #default(index, values) {
    const step = this.plan.steps[index];
    for (const i of this.#found.get(index)) {
      const applies = this.#applies(step, i, values);
      if (applies !== false) return applies && step.alternatives[i];
    }
    const said = step.alternatives.map(([k]) => this.refused.get(k)).filter((text) => text).map((text) => `; ${text}`);
    throw new TargetError(
      `no alternative of ${this.name(step)} runs at these sizes on the device '${this.target.name}'${said.join("")}`,
    );
  }

  /** [binding, content] of each texture that a kernel reads; without those whose sizes are not known. */
  contents(step, kernel, values) {
    const texels = new Map(step.textures);
    return texturesOf(this.plan.kernels[kernel]).map(([binding, words]) => {
      const [place, , offset] = step.bindings[binding];
      return [binding, { place, offset: resolve(offset, values), texels: resolve(texels.get(binding), values), words }];
    }).filter(([, c]) => c.offset !== null && c.texels !== null)
      .map(([binding, c]) => [binding, { ...c, texels: Math.max(1, c.texels) }]);
  }

  /** The constants that dispatches may read in buffers, and what they may read of constants through textures. */
  constants() {
    const buffers = new Set();
    const contents = [];
    for (const i of this.#found.keys()) {
      const step = this.plan.steps[i];
      for (const kernel of new Set(this.#reachable(i).map((a) => step.alternatives[a][0]))) {
        const read = this.contents(step, kernel, this.#unknown);
        contents.push(...read.map(([, c]) => c).filter(({ place: [kind] }) => kind === "c"));
        const { access } = this.plan.kernels[kernel].layout;
        step.bindings.forEach(([[kind, index]], k) => {
          if (kind === "c" && "rw".includes(access[k])) buffers.add(index);
        });
      }
    }
    return { buffers, contents };
  }

  /** The alternatives that may be taken, in order, up to one that runs at all sizes. */
  #candidates(step) {
    const found = [];
    const reasons = [];
    for (const [i, [kernel]] of step.alternatives.entries()) {
      const reason = this.refused.get(kernel) ?? lacks(this.target, this.plan.kernels[kernel].requires);
      const applies = reason ? null : this.#applies(step, i, this.#unknown);
      if (reason) reasons.push(reason);
      else if (applies !== false) found.push(i);
      if (applies) break;
    }
    if (found.length) return found;
    throw new TargetError(`no alternative of ${this.name(step)} runs here: ${[...new Set(reasons)].join("; ")}`);
  }

  /** Whether an alternative's condition holds and its textures fit the target; null while that is not known. */
  #applies(step, i, values) {
    const when = step.when.length ? resolve(step.when[i], values) : 1;
    const texels = new Map(step.textures);
    const textures = texturesOf(this.plan.kernels[step.alternatives[i][0]]);
    const sizes = textures.map(([binding]) => resolve(texels.get(binding), values));
    const most = WIDTH * this.target.limits.maxTextureDimension2D;
    if (when === 0 || sizes.some((s) => s !== null && s > most)) return false;
    return when === null || sizes.includes(null) ? null : true;
  }
}

/** [binding, whether its texels are u32] of each texture that a kernel reads. */
function texturesOf({ layout: { access } }) {
  return [...access].map((a, i) => [i, "uU".includes(a), a]).filter(([, , a]) => !"rw".includes(a))
    .map(([i, words]) => [i, words]);
}
