// Philox4x32 with 10 rounds: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
fn mul_high(a: u32, b: u32) -> u32 {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let one = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let two = (a & 0xffffu) * (b >> 16u) + (one & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u);
}

fn philox(counter: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var k = seed;
  for (var r = 0u; r < 10u; r += 1u) {
    let a = mul_high(0xd2511f53u, c.x);
    let b = mul_high(0xcd9e8d57u, c.z);
    c = vec4<u32>(b ^ c.y ^ k.x, 0xcd9e8d57u * c.z, a ^ c.w ^ k.y, 0xd2511f53u * c.x);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

// A multiple of 2^-24 in [0, 1).
fn unit_interval(word: u32) -> f32 { return f32(word >> 8u) * 0.000000059604644775390625; }
