//! bindings x r state:w *
//! params hidden blocks batch owners all_units steps first last row_step row_batch backward_from *
//! fns length inputs products candidates act_f act_g emit
//! use index recurrent

// A GRU whose reset gate acts on the state: gates z and r of all units first, then the candidates. As recurrent.wgsl;
// the second half of shared_units holds r·h, and z waits behind the hidden state in `state`.
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
  for (var t = p.first; t < min(p.last, count); t++) {
    let place = place_of(t, count, d);
    let row = place * p.row_step + n * p.row_batch;
    for (var u = local; u < p.hidden; u += 256u) {
      let g = inputs(d, row, u) + products(d, u, 0u);
      state[p.all_units + base + u] = act_f(d, g.x);
      shared_units[UNITS + u] = act_f(d, g.y) * shared_units[u];
    }
    workgroupBarrier();
    for (var u = local; u < p.hidden; u += 256u) {
      let z = state[p.all_units + base + u];
      let candidate = act_g(d, inputs(d, row, u).z + candidates(d, u, UNITS).x);
      let v = (1.0 - z) * candidate + z * shared_units[u];
      shared_units[u] = v;
      emit(place, d, n, u, v);
    }
    workgroupBarrier();
  }
  for (var u = local; u < p.hidden; u += 256u) { state[base + u] = shared_units[u]; }
  for (var t = max(p.first, count); t < p.last; t++) {
    for (var u = local; u < p.hidden; u += 256u) { emit(t, d, n, u, 0.0); }
  }
}
