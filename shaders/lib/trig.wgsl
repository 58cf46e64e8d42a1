// sin, cos and tan of any f32 (with lib/int64, lib/nan and lib/float): WGSL's own may be off by 2^-11, and only within ±π.
// Polynomials and the three-part π/2 from Cephes (sinf.c), the long reduction after Payne and Hanek.
const TWO_OVER_PI = array<u32, 8>(
  0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);

struct Reduced { r: f32, quadrant: u32 }

fn window(at: u32) -> u32 {
  var table = TWO_OVER_PI;
  return u64_shl(vec2<u32>(table[min((at >> 5u) + 1u, 7u)], table[min(at >> 5u, 7u)]), at & 31u).y;
}

// The mantissa times the 96 bits of 2/π that are worth less than 4 turns of a quarter: top 2 bits = the quadrant.
fn reduce_long(a: f32) -> Reduced {
  let b = bitcast<u32>(a);
  let m = (b & 0x7fffffu) | 0x800000u;
  let at = (b >> 23u) - 120u;
  let low = u32_mul_wide(m, window(at + 64u));
  let mid = i64_add(u32_mul_wide(m, window(at + 32u)), vec2<u32>(low.y, 0u));
  let top = m * window(at) + mid.y;
  var f = u64_shl(vec2<u32>(mid.x, top), 2u);
  var q = top >> 30u;
  let negative = (f.y >> 31u) == 1u;
  f = select(f, i64_neg(f), negative);
  q += select(0u, 1u, negative);
  let zeros = countLeadingZeros(f.y);
  f = u64_shl(f, zeros);
  let r = f32(f.y >> 8u) * bitcast<f32>((103u - zeros) << 23u) * 1.5707963267948966;
  return Reduced(select(r, -r, negative), q & 3u);
}

// v = quadrant · π/2 + r, |r| ≤ π/4 up to rounding; for finite v.
fn reduce(v: f32) -> Reduced {
  let a = abs(v);
  var out: Reduced;
  if (a < 8000.0) {
    let k = round(a * 0.6366197723675814);
    out.r = ((a - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.54978995489188216e-8;
    out.quadrant = u32(k) & 3u;
  } else {
    out = reduce_long(a);
  }
  let negative = v < 0.0;
  return Reduced(select(out.r, -out.r, negative), select(out.quadrant, 4u - out.quadrant, negative) & 3u);
}

fn sin_poly(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4));
}
fn cos_poly(r: f32) -> f32 {
  let z = r * r;
  return 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
}
fn sin_reduced(x: Reduced) -> f32 {
  let v = select(sin_poly(x.r), cos_poly(x.r), (x.quadrant & 1u) == 1u);
  return select(v, -v, x.quadrant >= 2u);
}
fn f32_sin(v: f32) -> f32 { return select(sin_reduced(reduce(v)), f32_nan(), is_nan(v) | is_inf(v)); }
fn f32_cos(v: f32) -> f32 {
  let x = reduce(v);
  return select(sin_reduced(Reduced(x.r, (x.quadrant + 1u) & 3u)), f32_nan(), is_nan(v) | is_inf(v));
}
fn f32_tan(v: f32) -> f32 {
  let x = reduce(v);
  let s = sin_poly(x.r);
  let c = cos_poly(x.r);
  return select(select(s / c, -c / s, (x.quadrant & 1u) == 1u), f32_nan(), is_nan(v) | is_inf(v));
}
