// NaN and infinity by bits: an implementation may assume that float comparisons never see them.
fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) == 0x7f800000u; }
// The larger and the smaller of two; NaN where either is NaN (WGSL's max and min may drop it).
fn max_nan(a: f32, b: f32) -> f32 { return select(select(b, a, a > b || is_nan(a)), b, is_nan(b)); }
fn min_nan(a: f32, b: f32) -> f32 { return select(select(b, a, a < b || is_nan(a)), b, is_nan(b)); }
