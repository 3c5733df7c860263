use models_tests::{measure::{device, held}, transformer::*, *};
fn show(name: &str, shapes: &[(&str, usize)], f: impl Fn(bool, usize) -> measure::Held) {
    for ck in [false, true] {
        let (a, b, c) = (f(ck, 1), f(ck, 2), f(ck, 3));
        let slope = b.kept_bytes - a.kept_bytes;
        print!("== {name} {} kept/sample {slope} ({}) peak/sample {} const {} :", if ck {"CK"} else {"plain"}, c.kept_bytes - b.kept_bytes, c.peak_bytes - b.peak_bytes, 2 * a.kept_bytes as i64 - b.kept_bytes as i64);
        for (size, count) in &b.by_size {
            let hit: Vec<_> = shapes.iter().filter(|(_, v)| v * 2 * 4 == *size).map(|x| x.0).collect();
            let one: Vec<_> = shapes.iter().filter(|(_, v)| v * 4 == *size).map(|x| format!("1x{}", x.0)).collect();
            if *size as f64 * *count as f64 > 0.003 * b.kept_bytes as f64 || !hit.is_empty() {
                if hit.is_empty() && one.is_empty() { print!(" {count} x <{} f32/sample>", *size as f64 / 8.0) } else { print!(" {count} x {}{}", hit.join("="), if one.is_empty() {String::new()} else {format!("({})", one.join("="))}) }
            }
        }
        println!();
    }
}
fn tr_shapes(d: &Dimensions) -> Vec<(&'static str, usize)> {
    let hd = d.d_model / d.heads;
    vec![("s*d", d.seq * d.d_model), ("h*s*s", d.heads * d.seq * d.seq), ("s*ff", d.seq * d.d_ff), ("s*V", d.seq * d.vocab), ("s*kv", d.seq * d.kv_heads * hd),
      ("s", d.seq), ("h*s", d.heads * d.seq), ("2*s*d", 2 * d.seq * d.d_model), ("2*s*kv", 2*d.seq * d.kv_heads * hd), ("s*s/4", d.seq*d.seq/4), ("h*s*s/4", d.heads*d.seq*d.seq/4), ("2s(int)", 2*d.seq), ("w dd", d.d_model*d.d_model), ("w dff", d.d_model*d.d_ff), ("wV", d.d_model*d.vocab)]
}
fn main() {
    let which = std::env::args().nth(1).unwrap();
    let base = Dimensions { layers: 1, d_model: 160, d_ff: 448, heads: 5, kv_heads: 5, vocab: 1100, seq: 96, dropout: 0.0, causal: true, tied: false, norm_first: true };
    if which == "gpt" {
        for (n, d) in [("gpt L1", base), ("gpt L2", Dimensions { layers: 2, ..base }), ("L2 nomask", Dimensions { layers: 2, causal: false, ..base }), ("L1 postnorm", Dimensions { layers: 1, norm_first: false, ..base }), ("L2 postnorm", Dimensions { layers: 2, norm_first: false, ..base }), ("L2 tied", Dimensions { layers: 2, tied: true, ..base }), ("L2 dropout", Dimensions { layers: 2, dropout: 0.1, ..base }),
          ("facts untied", Dimensions { layers: 6, d_model: 512, d_ff: 2048, heads: 8, kv_heads: 8, vocab: 8192, seq: 256, causal: false, norm_first: false, ..base }),
          ] {
            show(n, &tr_shapes(&d), |ck, b| { let dev = device(ck); let m = Gpt::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
    if which == "cls" {
        let base = Dimensions { vocab: 8, ..base };
        for (n, d) in [("cls L1", base), ("cls L2", Dimensions { layers: 2, ..base }), ("cls L2 drop", Dimensions { layers: 2, dropout: 0.1, ..base })] {
            show(n, &tr_shapes(&d), |ck, b| { let dev = device(ck); let m = Classifier::new(&d, 500, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
    if which == "mlp" {
        for w in [vec![300, 500, 700, 200, 10], vec![64, 1024, 1024, 1024, 5]] {
            let sh: Vec<_> = w.iter().map(|x| (&*format!("w{x}").leak(), *x)).map(|(a, b)| (a as &str, b)).collect();
            let k = 64;
            let sh: Vec<_> = sh.into_iter().map(|(a, b)| (a, b * k)).collect();
            show(&format!("mlp {w:?}"), &sh, |ck, b| { let dev = device(ck); let m = mlp::Mlp::new(&w, &dev); held(|| m.loss(&w, k * b, &dev)) });
        }
    }
    if which == "rnn" {
        let base = recurrent::Dimensions { input: 120, hidden: 200, layers: 1, seq: 10, classes: 7, vocab: 0, every_step: false, gru: false };
        let k = 32;
        for gru in [false, true] { for (layers, every_step, vocab, seq) in [(1, false, 0, 10), (1, false, 0, 20), (2, false, 0, 10), (2, true, 0, 10), (2, true, 50, 10)] {
            let d = recurrent::Dimensions { gru, layers, every_step, vocab, seq, ..base };
            show(&format!("rnn {d:?}"), &[("h", k*d.hidden), ("i", k*d.input), ("s*h", k*d.seq*d.hidden), ("s*i", k*d.seq*d.input)], |ck, b| { let dev = device(ck); let m = recurrent::Recurrent::new(&d, &dev); held(|| m.loss(&d, k * b, &dev)) });
        } }
    }
    if which == "conv" {
        use convnet::*;
        let base = Dimensions { image: 32, stages: vec![[40, 1]], classes: 10, kind: BlockKind::Plain, group_norm: false, stem: false };
        for group_norm in [false, true] { for (kind, n) in [(BlockKind::Plain, 1), (BlockKind::Plain, 2), (BlockKind::Plain, 3), (BlockKind::Basic, 1), (BlockKind::Basic, 2), (BlockKind::Basic, 3), (BlockKind::Bottleneck, 1), (BlockKind::Bottleneck, 2), (BlockKind::Bottleneck, 3)] { for stem in [false, true] {
            if stem && (n != 2 || kind == BlockKind::Bottleneck) { continue; }
            let d = Dimensions { group_norm, kind, stem, stages: vec![[40, n]], ..base.clone() };
            let p = if stem { 64 } else { 1024 };
            show(&format!("conv {kind:?} n={n} gn={group_norm} stem={stem}"), &[("c", 40*p), ("4c", 160*p), ("img", 3*1024), ("stem", 40 * 256)], |ck, b| { let dev = device(ck); let m = Convnet::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        } } }
        for (kind, group_norm) in [(BlockKind::Plain, false), (BlockKind::Basic, false), (BlockKind::Bottleneck, false), (BlockKind::Basic, true)] {
            let d = Dimensions { group_norm, kind, stages: vec![[24, 2], [40, 2]], ..base.clone() };
            show(&format!("conv two stages {kind:?} gn={group_norm}"), &[("a", 24*1024), ("4a", 96*1024), ("b", 40*256), ("4b", 160*256), ("b full", 40*1024),("img", 3*1024)], |ck, b| { let dev = device(ck); let m = Convnet::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
    if which == "facts" {
        use convnet::*;
        for group_norm in [false, true] {
        let d = Dimensions { image: 64, stages: vec![[96, 8]], classes: 10, kind: BlockKind::Plain, group_norm, stem: false };
        show("facts cnn", &[("c", 96 * 4096)], |ck, b| { let dev = device(ck); let m = Convnet::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
    if which == "unet" {
        use unet::*;
        for (depth, base) in [(1, 16), (2, 12), (3, 12)] {
            let d = Dimensions { image: 48, channels: 3, base, depth, classes: 2 };
            let p = 48 * 48;
            show(&format!("unet {d:?}"), &[("l0", base * p), ("l1=l0/2", base * p / 2), ("l2=l0/4", base * p / 4), ("l3=l0/8", base * p / 8), ("2*l0", base * p * 2), ("classes", 2 * p), ("img", 3 * p), ("l0 idx i64", base*p/2)], |ck, b| { let dev = device(ck); let m = UNet::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
    if which == "llama" {
        let base = Dimensions { heads: 8, kv_heads: 2, d_model: 128, ..base };
        for (n, d) in [("llama L1", base), ("llama L2", Dimensions { layers: 2, ..base }), ("llama L2 mha", Dimensions { layers: 2, kv_heads: 8, ..base })] {
            show(n, &tr_shapes(&d), |ck, b| { let dev = device(ck); let m = Llama::new(&d, &dev); held(|| m.loss(&d, b, &dev)) });
        }
    }
}
