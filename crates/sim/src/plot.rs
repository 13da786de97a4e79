//! A plot that can be looked at: how much was allocated as demand grew, one line per contestant.

use std::collections::BTreeMap;

use crate::compare::Cell;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 52.0;

/// Colours that can be told apart, also by those who see fewer of them.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b5a2b"];

/// The mean curve of each contestant, over all lists and seeds given: percent of capacity that lies idle though it is asked for.
pub fn svg(cells: &[Cell]) -> String {
    /// By percent asked for: the sum of what lay idle, and of how many.
    type Sums = BTreeMap<u32, (f64, u32)>;
    let mut lines: Vec<(String, Sums)> = Vec::new();
    for cell in cells {
        let at = lines.iter().position(|(name, _)| *name == cell.contestant).unwrap_or_else(|| {
            lines.push((cell.contestant.clone(), BTreeMap::new()));
            lines.len() - 1
        });
        for (asked, given) in &cell.curve {
            let entry = lines[at].1.entry(asked.floor() as u32).or_default();
            *entry = (entry.0 + asked.min(100.0) - given, entry.1 + 1);
        }
    }
    let mut means: Vec<(String, Vec<(f64, f64)>)> = lines
        .into_iter()
        .map(|(name, points)| {
            (name, points.into_iter().map(|(x, (sum, n))| (f64::from(x), sum / f64::from(n))).collect())
        })
        .collect();
    // Best last, so that it lies on top; the legend reads like the lines end.
    let end = |points: &[(f64, f64)]| points.last().map_or(0.0, |(_, y)| *y);
    means.sort_by(|a, b| end(&b.1).total_cmp(&end(&a.1)));
    let shown =
        |points: &[(f64, f64)]| points.iter().filter(|(x, _)| *x >= 70.0).map(|(_, y)| *y).fold(0.0f64, f64::max);
    let top = means.iter().map(|(_, points)| shown(points)).fold(5.0f64, f64::max).ceil();
    let x = |percent: f64| LEFT + (percent - 70.0) / 60.0 * (WIDTH - LEFT - RIGHT);
    let y = |percent: f64| HEIGHT - BOTTOM - percent / top * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"600\">GPU capacity that is asked for and lies idle</text>\n"
    );
    let step = if top > 12.0 { 5.0 } else { 1.0 };
    let mut tick = 0.0;
    while tick <= top {
        let at = y(tick);
        out += &format!("<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#e4e4e4\"/>", WIDTH - RIGHT);
        out += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{tick}%</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
        tick += step;
    }
    for percent in [70, 80, 90, 100, 110, 120, 130] {
        let at = x(f64::from(percent));
        out += &format!(
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{percent}%</text>\n",
            HEIGHT - BOTTOM + 20.0
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    out += &format!(
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">GPU demand so far, of capacity</text>\n",
        HEIGHT - 10.0
    );
    out += &format!(
        "<path d=\"M{0:.1} {TOP}V{1:.1}\" stroke=\"#bbb\" stroke-dasharray=\"4 4\"/>\n",
        x(100.0),
        HEIGHT - BOTTOM
    );
    let mut label = TOP - 8.0;
    for (i, (name, points)) in means.iter().enumerate() {
        let ours = name.starts_with("frag");
        let colour = COLOURS[(means.len() - 1 - i) % COLOURS.len()];
        let path: Vec<String> = points
            .iter()
            .filter(|(at, _)| (70.0..=130.0).contains(at))
            .map(|(at, idle)| format!("{:.1} {:.1}", x(*at), y(*idle)))
            .collect();
        let width = if ours { 3.2 } else { 1.6 };
        out += &format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"><title>{name}</title></path>\n",
            path.join("L")
        );
        // Labels stand at the ends of their lines, pushed apart where those lie close.
        label = (y(end(points)) + 4.0).max(label + 16.0);
        let weight = if ours { 700 } else { 400 };
        out += &format!(
            "<text x=\"{:.1}\" y=\"{label:.1}\" fill=\"{colour}\" font-weight=\"{weight}\">{name} {:.2}%</text>\n",
            WIDTH - RIGHT + 10.0,
            end(points)
        );
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_has_a_line_and_a_label() {
        let cell = |who: &str, idle: f64| Cell {
            list: "x".into(),
            contestant: who.into(),
            seed: 1,
            at_100: idle,
            at_130: idle,
            curve: (60..=130).map(|p| (f64::from(p), f64::from(p).min(100.0) - idle)).collect(),
        };
        let svg = svg(&[cell("frag", 3.0), cell("fgd", 5.0)]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains(">frag 3.00%</text>") && svg.contains(">fgd 5.00%</text>"));
        assert!(!svg.contains("NaN"));
        assert_eq!(svg.matches("<title>").count(), 2);
    }
}
