//! Pictures of figures over time, as SVG.

use core::fmt::{self, Write as _};

use super::draw::escaped;
use super::step;
use gpu_tuned_core::three_digits;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// Columns of the picture, of which each shows the least and the most of a line.
const COLUMNS: usize = 400;
/// No figure of a run is as large.
const LARGEST: f64 = 1e100;
/// As many lines can be told apart.
const COLOURS: usize = 4;

const STYLE: &str = "<style>
  text { font: 12px system-ui, sans-serif; fill: #333 } .title { font-weight: 600; font-size: 14px }
  .ground { fill: #fff } .grid { stroke: #e4e4e4 } .axis { stroke: #666 } .card { stroke: #999; stroke-dasharray: 2 3 }
  .course { fill: none; stroke-width: 1.5 }
  .c0 { stroke: #0065a8 } .c1 { stroke: #c44f00 } .c2 { stroke: #3d7a1f } .c3 { stroke: #8a3ca8 }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc } .ground { fill: #15181c } .grid { stroke: #2b3036 } .axis { stroke: #999 } .card { stroke: #777 }
    .c0 { stroke: #5db4f0 } .c1 { stroke: #ff9a4d } .c2 { stroke: #9bd36e } .c3 { stroke: #d59af0 }
  }
</style>";

/// A picture: figures of one unit over time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// What it is of, with the unit.
    pub title: String,
    /// At most four can be told apart.
    pub lines: Vec<CourseLine>,
    /// The figure at the top, where it is not that of the highest point.
    pub most: Option<f64>,
    /// A figure that is marked from left to right, and what it is.
    pub limit: Option<(f64, String)>,
    /// Seconds at the left and at the right, so that several pictures share them; else those of the points.
    pub between: Option<(f64, f64)>,
}

/// A figure over time.
#[derive(Clone, Debug, Default)]
pub struct CourseLine {
    /// What stands in the legend, where there are several.
    pub name: String,
    /// Seconds and figures, ascending in time; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// Where figures lie on the page.
struct Scale {
    from: f64,
    to: f64,
    most: f64,
    step: f64,
}

impl Course {
    /// The picture, as a file of its own; `None` where there is not even one point.
    pub fn svg(&self) -> Option<String> {
        let scale = Scale::of(self)?;
        let mut text = String::new();
        self.write(&mut text, &scale).expect("BUG: memory can be written to");
        Some(text)
    }

    fn write(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let title = escaped(&self.title);
        writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{title} over time</title>\n{STYLE}\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}</text>",
        )?;
        scale.axes(text)?;
        if let Some((figure, label)) = &self.limit {
            let y = scale.y(*figure);
            writeln!(text, "<path class=\"card\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
            let label = escaped(label);
            writeln!(text, "<text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y - 4.0)?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            line.draw(text, scale, index % COLOURS)?;
        }
        self.legend(text)?;
        text.push_str("</svg>\n");
        Ok(())
    }

    /// Names from the right to the left, where there are several lines.
    fn legend(&self, text: &mut String) -> fmt::Result {
        let mut x = RIGHT;
        for (index, line) in self.lines.iter().enumerate().rev().filter(|_| self.lines.len() > 1) {
            let name = escaped(&line.name);
            writeln!(text, "<text x=\"{x:.1}\" y=\"22\" text-anchor=\"end\">{name}</text>")?;
            x -= 6.9 * line.name.chars().count() as f64 + 8.0;
            writeln!(text, "<path class=\"course c{}\" d=\"M{:.1} 18h20\"/>", index % COLOURS, x - 20.0)?;
            x -= 36.0;
        }
        Ok(())
    }
}

impl CourseLine {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        // Beyond that there is no round step of a grid.
        self.points.iter().copied().filter(|(at, figure)| at.abs() < LARGEST && figure.abs() < LARGEST)
    }

    fn draw(&self, text: &mut String, scale: &Scale, colour: usize) -> fmt::Result {
        let points = self.thinned(scale);
        let place = |(at, figure): &(f64, f64)| format!("{:.1} {:.1}", scale.x(*at), scale.y(*figure));
        match points.as_slice() {
            [] => Ok(()),
            [(at, figure)] => {
                let (x, y) = (scale.x(*at), scale.y(*figure));
                writeln!(text, "<circle class=\"course c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>")
            }
            several => {
                let path: Vec<_> = several.iter().map(place).collect();
                writeln!(text, "<path class=\"course c{colour}\" d=\"M{}\"/>", path.join("L"))
            }
        }
    }

    /// Of each column of the picture the least and the most, in the order in which they were: peaks stay.
    fn thinned(&self, scale: &Scale) -> Vec<(f64, f64)> {
        let points: Vec<(f64, f64)> = self.finite().collect();
        if points.len() <= 2 * COLUMNS {
            return points;
        }
        let column = |at: f64| ((at - scale.from) / (scale.to - scale.from) * COLUMNS as f64) as usize;
        let mut kept: Vec<(f64, f64)> = Vec::with_capacity(2 * COLUMNS);
        for group in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
            let by_figure = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
            let ends = group.iter().min_by(by_figure).zip(group.iter().max_by(by_figure));
            let (least, most) = ends.map(|(least, most)| (*least, *most)).expect("BUG: a group is not empty");
            kept.extend(if least.0 <= most.0 { [least, most] } else { [most, least] });
        }
        kept
    }
}

impl Scale {
    fn of(course: &Course) -> Option<Self> {
        let points = || course.lines.iter().flat_map(CourseLine::finite);
        let first = points().map(|(at, _)| at).reduce(f64::min)?;
        let last = points().map(|(at, _)| at).fold(first, f64::max);
        let (from, to) = course.between.unwrap_or((first, last));
        let highest = points().map(|(_, figure)| figure).chain(course.limit.iter().map(|(figure, _)| *figure));
        let most = course.most.unwrap_or_else(|| highest.fold(0.0, f64::max) * 1.06);
        let most = if most > 0.0 { most } else { 1.0 };
        // Half of the lines that a taller picture has.
        let step = 2.0 * step(most);
        let (most, step) = match course.most {
            Some(_) => (most, most / 2.0),
            None => ((2.0 * most / step).ceil() * step / 2.0, step),
        };
        Some(Self { from, to: to.max(from + 1e-3), most, step })
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + ((at - self.from) / (self.to - self.from)).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn y(&self, figure: f64) -> f64 {
        BOTTOM - (figure / self.most).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn axes(&self, text: &mut String) -> fmt::Result {
        for count in 0..=(self.most / self.step).floor() as u32 {
            let figure = f64::from(count) * self.step;
            let (y, label) = (self.y(figure), if count == 0 { "0".to_owned() } else { three_digits(figure) });
            writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
            writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0)?;
        }
        let seconds = self.to - self.from;
        let step = self::step(seconds);
        for count in 0..=(seconds / step).floor() as u32 {
            let at = f64::from(count) * step;
            let (x, label) = (self.x(self.from + at), duration(at, step));
            writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>")?;
            writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", BOTTOM + 19.0)?;
        }
        writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>")
    }
}

/// Seconds, or minutes and hours where there are many, in steps of `step`.
fn duration(seconds: f64, step: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < step / 2.0 => "0".to_owned(),
        _ if step < 1.0 => format!("{seconds:.1} s"),
        ..600 => format!("{whole} s"),
        600..7200 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{Course, CourseLine};

    fn drawn(points: Vec<(f64, f64)>) -> Option<String> {
        let line = CourseLine { name: String::new(), points };
        Course { title: "a <b> & c".to_owned(), lines: vec![line], ..Course::default() }.svg()
    }

    /// Heights of the points of the only line.
    fn heights(svg: &str) -> Vec<f64> {
        let path = svg.split("class=\"course c0\" d=\"M").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        path.split('L').map(|point| point.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn without_points_there_is_no_picture() {
        assert_eq!(drawn(Vec::new()), None);
        assert_eq!(drawn(vec![(0.0, f64::NAN), (0.0, f64::INFINITY), (1.0, 1e308)]), None);
    }

    #[test]
    fn titles_are_text() {
        let svg = drawn(vec![(0.0, 1.0), (1.0, 2.0)]).unwrap();
        assert!(svg.contains("a &lt;b&gt; &amp; c") && !svg.contains("<b>"));
    }

    #[test]
    fn a_peak_among_very_many_points_is_there() {
        let mut points: Vec<_> = (0..100_000).map(|index| (f64::from(index) / 10.0, 50.0)).collect();
        points[77_777].1 = 100.0;
        points[33_333].1 = 0.0;
        let svg = drawn(points).unwrap();
        let heights = heights(&svg);
        assert!(heights.len() <= 802, "{}", heights.len());
        // The page's heights count downwards.
        let count = |is: fn(f64, f64) -> bool| heights.iter().filter(|height| is(**height, heights[0])).count();
        assert_eq!((count(|height, usual| height < usual), count(|height, usual| height > usual)), (1, 1));
    }

    #[test]
    fn one_point_and_no_time_at_all_are_drawn() {
        assert!(drawn(vec![(5.0, 1.0)]).unwrap().contains("<circle"));
        let heights = heights(&drawn(vec![(5.0, 0.0), (5.0, 0.0)]).unwrap());
        assert!(heights.iter().all(|height| height.is_finite()));
    }
}
