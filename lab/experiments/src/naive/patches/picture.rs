//! Pictures, and patches cut from them.

use std::f32::consts::{PI, SQRT_2};

use rand::{RngExt, rngs::StdRng};

use super::COLOURS;

/// Stripes and discs over a gradient.
const SHAPES: usize = 12;
/// Range of scales of a patch relative to the picture.
const SCALES: std::ops::Range<f32> = 0.7..1.4;

/// A square picture, colour by colour.
pub(super) struct Picture {
    side: usize,
    pixels: Vec<u8>,
}

/// Something in a picture.
struct Shape {
    centre: [f32; 2],
    radius: f32,
    /// Direction of the stripes, with their frequency in radians per pixel; a disc has none.
    stripes: Option<[f32; 2]>,
    colour: [f32; COLOURS],
}

impl Shape {
    fn drawn(side: f32, random: &mut StdRng) -> Self {
        let pace = random.random_range(0.1..0.9);
        let angle = random.random_range(0.0..PI);
        Self {
            centre: [(); 2].map(|()| random.random_range(0.0..side)),
            radius: random.random_range(0.05..0.35) * side,
            stripes: (random.random_range(0..2) == 0).then(|| [pace * angle.cos(), pace * angle.sin()]),
            colour: [(); COLOURS].map(|()| random.random_range(0.0..1.0)),
        }
    }

    /// Visible share at a point.
    fn share(&self, [x, y]: [f32; 2]) -> f32 {
        let [dx, dy] = [x - self.centre[0], y - self.centre[1]];
        if dx * dx + dy * dy > self.radius * self.radius {
            return 0.0;
        }
        self.stripes.map_or(1.0, |[along, across]| 0.5 + 0.5 * (along * dx + across * dy).sin())
    }
}

impl Picture {
    /// A picture that is drawn at random.
    pub(super) fn painted(side: usize, random: &mut StdRng) -> Self {
        let shapes: Vec<Shape> = (0..SHAPES).map(|_| Shape::drawn(side as f32, random)).collect();
        let corners = [(); 2].map(|()| [(); COLOURS].map(|()| random.random_range(0.1_f32..0.9)));
        let mut pixels = vec![0; COLOURS * side * side];
        for place in 0..side * side {
            let (y, x) = ((place / side) as f32, (place % side) as f32);
            let far = (x + y) / (2.0 * side as f32);
            let seen: Vec<f32> = shapes.iter().map(|shape| shape.share([x, y])).collect();
            for colour in 0..COLOURS {
                let ground = corners[0][colour] * (1.0 - far) + corners[1][colour] * far;
                let over = |under: f32, (shape, share): (&Shape, &f32)| under + share * (shape.colour[colour] - under);
                let value = shapes.iter().zip(&seen).fold(ground, over);
                pixels[colour * side * side + place] = (value * 255.0) as u8;
            }
        }
        Self { side, pixels }
    }

    /// Interpolates between the four pixels around a point, 0 to 255.
    fn between(&self, colour: usize, [x, y]: [f32; 2]) -> f32 {
        let at = |x: usize, y: usize| f32::from(self.pixels[(colour * self.side + y) * self.side + x]);
        let (left, top) = (x as usize, y as usize);
        let (along, down) = (x - left as f32, y - top as f32);
        let row = |y| at(left, y) * (1.0 - along) + at(left + 1, y) * along;
        row(top) * (1.0 - down) + row(top + 1) * down
    }
}

/// Position and transformation of a square cut from a picture.
pub(super) struct View {
    centre: [f32; 2],
    /// From one pixel of the square to the next, and from one row to the next.
    steps: [[f32; 2]; 2],
    side: usize,
    gamma: f32,
}

impl View {
    /// A square of this side, anywhere in the picture, turned, scaled and mirrored.
    pub(super) fn drawn(picture: &Picture, side: usize, random: &mut StdRng) -> Self {
        let scale = random.random_range(SCALES);
        let angle = random.random_range(0.0..2.0 * PI);
        // One of both is a mirror image.
        let turned = if random.random_range(0..2) == 0 { scale } else { -scale };
        // No corner lies further from the centre, and a pixel has neighbours.
        let reach = SQRT_2 * scale * side as f32 / 2.0 + 1.0;
        Self {
            centre: [(); 2].map(|()| random.random_range(reach..picture.side as f32 - 1.0 - reach)),
            steps: [[scale * angle.cos(), scale * angle.sin()], [-turned * angle.sin(), turned * angle.cos()]],
            side,
            gamma: random.random_range(0.7..1.4),
        }
    }

    /// The square, colour by colour, 0 to 1.
    pub(super) fn cut(&self, picture: &Picture) -> Vec<f32> {
        let mut values = Vec::with_capacity(COLOURS * self.side * self.side);
        let half = (self.side as f32 - 1.0) / 2.0;
        for colour in 0..COLOURS {
            for row in 0..self.side {
                for column in 0..self.side {
                    let (column, row) = (column as f32 - half, row as f32 - half);
                    let place =
                        [0, 1].map(|axis| self.centre[axis] + column * self.steps[0][axis] + row * self.steps[1][axis]);
                    values.push((picture.between(colour, place) / 255.0).powf(self.gamma));
                }
            }
        }
        values
    }
}

/// A blur that is stronger in one direction than across it.
pub(super) struct Blur {
    radius: usize,
    /// Weights of the neighbours; they sum to 1.
    weights: Vec<f32>,
}

impl Blur {
    /// A blur of any direction and strength.
    pub(super) fn drawn(radius: usize, random: &mut StdRng) -> Self {
        let angle = random.random_range(0.0..PI);
        let [along, across] = [(); 2].map(|()| random.random_range(0.15..0.4) * radius as f32);
        let reach = radius as f32;
        let side = 2 * radius + 1;
        let weight = |place: usize| {
            let (x, y) = ((place % side) as f32 - reach, (place / side) as f32 - reach);
            let (ahead, aside) = (angle.cos() * x + angle.sin() * y, angle.cos() * y - angle.sin() * x);
            (-0.5 * ((ahead / along).powi(2) + (aside / across).powi(2))).exp()
        };
        let weights: Vec<f32> = (0..side * side).map(weight).collect();
        let sum: f32 = weights.iter().sum();
        Self { radius, weights: weights.into_iter().map(|weight| weight / sum).collect() }
    }

    /// Blurs the middle of a square of one colour; the margin of the kernel is dropped.
    pub(super) fn apply(&self, colour: &[f32], whole: usize) -> Vec<f32> {
        let (side, reach) = (whole - 2 * self.radius, 2 * self.radius + 1);
        let mut blurred = vec![0.0; side * side];
        for (row, to) in blurred.chunks_exact_mut(side).enumerate() {
            for (place, weight) in self.weights.iter().enumerate() {
                let begin = (row + place / reach) * whole + place % reach;
                let from = &colour[begin..begin + side];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += weight * from);
            }
        }
        blurred
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::{Blur, Picture, View};

    #[test]
    fn blur_is_the_weighted_sum_of_neighbours_computed_directly() {
        let (radius, whole) = (2, 11);
        let random = &mut StdRng::seed_from_u64(3);
        let blur = Blur::drawn(radius, random);
        assert!((blur.weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let colour: Vec<f32> = (0..whole * whole).map(|place| ((place * 37) % 101) as f32 / 101.0).collect();
        let found = blur.apply(&colour, whole);
        for (y, x) in [(0, 0), (3, 5), (6, 6)] {
            let mut right = 0.0_f64;
            for dy in 0..5 {
                for dx in 0..5 {
                    right += f64::from(colour[(y + dy) * whole + x + dx]) * f64::from(blur.weights[dy * 5 + dx]);
                }
            }
            assert!((f64::from(found[y * 7 + x]) - right).abs() < 1e-5, "{y}, {x}");
        }
    }

    #[test]
    fn a_view_that_is_not_turned_shows_the_pixels_as_they_are() {
        let picture = Picture::painted(40, &mut StdRng::seed_from_u64(1));
        let view = View { centre: [20.0, 12.0], steps: [[1.0, 0.0], [0.0, 1.0]], side: 5, gamma: 1.0 };
        let values = view.cut(&picture);
        for (place, value) in values.iter().enumerate() {
            let (colour, row, column) = (place / 25, place / 5 % 5, place % 5);
            let right = f32::from(picture.pixels[(colour * 40 + 10 + row) * 40 + 18 + column]) / 255.0;
            assert!((value - right).abs() < 1e-6, "{place}: {value}, {right}");
        }
    }

    #[test]
    fn every_view_lies_within_its_picture() {
        let picture = Picture::painted(64, &mut StdRng::seed_from_u64(2));
        for seed in 0..500 {
            let values = View::drawn(&picture, 14, &mut StdRng::seed_from_u64(seed)).cut(&picture);
            assert!(values.iter().all(|value| (0.0..=1.0).contains(value)));
        }
    }
}
