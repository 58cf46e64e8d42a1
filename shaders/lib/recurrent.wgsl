// State that the units of a recurrent layer read of one another: two vectors of up to UNITS elements.
const UNITS = 2048u;
var<workgroup> shared_units: array<f32, 4096>;

fn units4(at: u32) -> vec4<f32> {
  return vec4<f32>(shared_units[at], shared_units[at + 1u], shared_units[at + 2u], shared_units[at + 3u]);
}

// The place in time of step t of a sequence of `count` steps.
fn place_of(t: u32, count: u32, d: u32) -> u32 {
  return select(t, count - 1u - t, d >= p.backward_from);
}

// The state into shared_units; the products read whole blocks, so what pads them must be 0 and not left over.
fn take_units(local: u32, base: u32) {
  for (var u = local; u < 4u * p.blocks; u += 256u) {
    shared_units[u] = 0.0;
    shared_units[UNITS + u] = 0.0;
    if (u < p.hidden) { shared_units[u] = state[base + u]; }
  }
}
