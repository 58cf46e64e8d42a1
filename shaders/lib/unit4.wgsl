// A unit of four elements (with lib/nan): what softmax_rows and norm_rows do to the units of a row.
fn larger(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  let first = (bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  let second = (bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return select(select(b, a, (a > b) | first), b, second);
}
fn across_max(v: vec4<f32>) -> f32 { return max_nan(max_nan(v.x, v.y), max_nan(v.z, v.w)); }
fn across_sum(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
