/** Textures that kernels read slots through: the twin of webrt/runtime/textures.py. */

/** Texels of a row: texel t, elements 4t … 4t+3, is at (t % WIDTH, floor(t / WIDTH)). */
export const WIDTH = 1024;

/** Steps after which a content is copied again rather than kept. */
const NEAR = 4;

/** What tells contents { place, offset, texels, words } apart. */
export const keyOf = ({ place, offset, texels, words }) => `${place}:${offset}:${texels}:${words}`;

/**
 * The textures of consecutive device steps, `touches` = [{ step, reads: [[binding, content]], writes: [place], breaks }].
 * Returns { sizes: { f: [texels], u: [texels] }, fills: step → [[content, id]], reads: "step:binding" → id } where an id
 * is [format, number]. Nothing is taken to be in a texture before the steps.
 */
export function scheduleOf(touches) {
  const made = { sizes: { f: [], u: [] }, fills: new Map(), reads: new Map() };
  const uses = usesOf(touches);
  if (uses.length) allocate(made, placed(uses, touches));
  return made;
}

/**
 * Contents between two writes of their slots, in order of first use: after step `ready` one is complete. A part of a
 * tensor is copied for each step that reads it, anything else for steps that are no more than NEAR apart.
 */
function usesOf(touches) {
  const uses = new Map();
  const found = [];
  const parts = partsOf(touches);
  eachRead(touches, (step, binding, content, tensor) => {
    const key = `${keyOf(content)}:${tensor}`;
    const partial = parts.has(tensor);
    let use = uses.get(key);
    if (!use || step - use.readers.at(-1)[0] > (partial ? 0 : NEAR)) {
      use = { content, ready: Number(tensor.split(":")[1]), readers: [], partial };
      uses.set(key, use);
      found.push(use);
    }
    use.readers.push([step, binding]);
  });
  return found;
}

/** Calls with (step, binding, content, "PLACE:READY") of each texture that is read. */
function eachRead(touches, call) {
  const written = new Map();
  for (const { step, reads, writes } of touches) {
    for (const [binding, content] of reads) {
      call(step, binding, content, `${content.place}:${written.get(String(content.place)) ?? -1}`);
    }
    for (const place of writes) written.set(String(place), step);
  }
}

/** The places, between two writes, that steps read in parts. */
function partsOf(touches) {
  const contents = new Map();
  eachRead(touches, (step, binding, content, tensor) => {
    contents.set(tensor, (contents.get(tensor) ?? new Set()).add(keyOf(content)));
  });
  return new Set([...contents].filter(([, found]) => found.size > 1).map(([tensor]) => tensor));
}

/**
 * Uses by the step before which they are copied: as few places as possible, each as late as possible; parts at their
 * first use.
 */
function placed(uses, touches) {
  const breaks = new Set([touches[0].step]);
  touches.forEach(({ step, breaks: ends }, i) => {
    if (ends && i + 1 < touches.length) breaks.add(step).add(touches[i + 1].step);
  });
  const found = new Map();
  for (const use of uses) {
    const first = use.readers[0][0];
    let where = Math.max(...[...breaks].filter((b) => b <= first));
    if (where <= use.ready || use.partial) {
      where = first;
      breaks.add(where);
    }
    if (!found.has(where)) found.set(where, []);
    found.get(where).push(use);
  }
  return found;
}

/** The largest first, each into the texture of its format that is idle for the shortest time around it. */
function allocate(made, places) {
  const steps = [...places.keys()].sort((a, b) => a - b);
  const order = steps.flatMap((step) => places.get(step).map((use) => ({ ...use, step, last: use.readers.at(-1)[0] })));
  const used = { f: [], u: [] };
  for (const use of [...order].sort((a, b) => b.content.texels - a.content.texels)) {
    const format = use.content.words ? "u" : "f";
    const idle = used[format].map((spans, number) => [idleAround(spans, use), number]).filter(([gap]) => gap !== null);
    const [best] = idle.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    if (!best) {
      made.sizes[format].push(use.content.texels);
      used[format].push([]);
    }
    const number = best ? best[1] : used[format].length - 1;
    used[format][number].push(use);
    use.id = [format, number];
  }
  for (const { step, content, id, readers } of order) {
    if (!made.fills.has(step)) made.fills.set(step, []);
    made.fills.get(step).push([content, id]);
    for (const [reader, binding] of readers) made.reads.set(`${reader}:${binding}`, id);
  }
}

/** The steps between a use and its nearest neighbour in a texture; null where they overlap. */
function idleAround(uses, { step, last }) {
  const gaps = uses.map((u) => Math.max(step - u.last, u.step - last));
  const gap = Math.min(...gaps);
  return gap > 0 ? gap : null;
}

/** The textures that schedules share; they grow by half again. `changed` is called before one is replaced. */
export class TexturePool {
  #kept = { f: [], u: [] };

  constructor(gpu, mostRows, changed) {
    Object.assign(this, { gpu, mostRows, changed });
  }

  get([format, number]) {
    return this.#kept[format][number];
  }

  /** Textures of at least these texels. */
  ensure(sizes) {
    for (const format of ["f", "u"]) {
      const kept = this.#kept[format];
      sizes[format].forEach((texels, i) => {
        const old = kept[i];
        let rows = Math.ceil(texels / WIDTH);
        if (old?.rows >= rows) return;
        if (old) {
          rows = Math.max(rows, Math.min(Math.floor(old.rows * 1.5), this.mostRows));
          this.changed();
          this.gpu.freeTexture(old);
        }
        kept[i] = this.gpu.allocTexture(rows * WIDTH, format === "u", "a texture operand");
      });
    }
  }

  close() {
    Object.values(this.#kept).forEach((kept) => kept.splice(0).forEach((t) => this.gpu.freeTexture(t)));
  }
}

/** Takes parts of a constant of any length and writes what a texture holds of it; null at the end writes the rest. */
export function textureWriter(gpu, texture, { offset, texels }) {
  const row = 16 * WIDTH;
  const end = offset + 16 * texels;
  const stage = new Uint8Array(64 * row);
  let position = 0;
  let filled = 0;
  let rows = 0;
  const flush = () => {
    gpu.writeTexture(texture, rows, stage.subarray(0, filled));
    rows += filled / row;
    filled = 0;
  };
  return (part) => {
    if (part === null) return filled && flush();
    const mine = part.subarray(Math.max(0, offset - position), Math.max(0, end - position));
    position += part.length;
    for (let from = 0; from < mine.length;) {
      const piece = mine.subarray(from, from + stage.length - filled);
      stage.set(piece, filled);
      filled += piece.length;
      from += piece.length;
      if (filled === stage.length) flush();
    }
    return undefined;
  };
}
