fn cell(d: u32, u: u32, at: u32, x: vec4<f32>, r: vec4<f32>, before: f32) -> f32 { return act_f(d, x.x + r.x); }
