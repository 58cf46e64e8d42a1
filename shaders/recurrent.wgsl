//! bindings x r state:w *
//! params hidden blocks batch owners all_units steps first last row_step row_batch backward_from *
//! fns length inputs products emit
//! use index recurrent

// One workgroup per direction and batch entry walks through time, an invocation per unit. `inputs` are the gates' share
// of the input, `products` that of the hidden state; all units read one half of shared_units and write the other.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let owner = group.y * groups.x + group.x;
  if (owner >= p.owners) { return; }
  let d = owner / p.batch;
  let n = owner % p.batch;
  let count = min(length(n), p.steps);
  let base = owner * p.hidden;
  take_units(local, base);
  workgroupBarrier();
  var now = 0u;
  for (var t = p.first; t < min(p.last, count); t++) {
    let place = place_of(t, count, d);
    for (var u = local; u < p.hidden; u += 256u) {
      let before = shared_units[now + u];
      let v = cell(d, u, base + u, inputs(d, place * p.row_step + n * p.row_batch, u), products(d, u, now), before);
      shared_units[UNITS - now + u] = v;
      emit(place, d, n, u, v);
    }
    now = UNITS - now;
    workgroupBarrier();
  }
  for (var u = local; u < p.hidden; u += 256u) { state[base + u] = shared_units[now + u]; }
  for (var t = max(p.first, count); t < p.last; t++) {
    for (var u = local; u < p.hidden; u += 256u) { emit(t, d, n, u, 0.0); }
  }
}
