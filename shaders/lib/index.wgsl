// The flat index of an invocation in a grid made by lowering.grid: x first, then y.
fn flat_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
  return (group.y * groups.x + group.x) * 64u + local;
}
