//! What is on the screen.

use std::time::Instant;

use divvy_core::units::{Bytes, Share};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use crate::cluster::View;
use crate::command::inspect::{self, DeviceShown, NodeShown};
use crate::output;

use super::usage::{All, Usage};

/// Which list the keys move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Focus {
    Cards,
    Pods,
}

/// The last look at the cluster, and where the reader is in it.
pub(super) struct Screen {
    nodes: Vec<NodeShown>,
    pods: Vec<Holding>,
    waiting: Vec<(String, String)>,
    note: Option<String>,
    /// What was used at the last look, and when that was: waiting is counted from look to look.
    used: Option<(All, Instant)>,
    focus: Focus,
    first: [usize; 2],
}

/// What one pod holds in all.
struct Holding {
    pod: String,
    node: String,
    cards: usize,
    share: Share,
    memory: Bytes,
    age: String,
    /// What it uses, where its agent tells.
    usage: Option<Usage>,
    /// The part of the time since the last look that it had work and waited for its turn.
    throttled: Option<f64>,
}

impl Screen {
    pub(super) fn of(view: &View, used: All) -> anyhow::Result<Screen> {
        let mut screen = Screen {
            nodes: Vec::new(),
            pods: Vec::new(),
            waiting: Vec::new(),
            note: None,
            used: None,
            focus: Focus::Cards,
            first: [0, 0],
        };
        screen.update(view, used)?;
        Ok(screen)
    }

    pub(super) fn update(&mut self, view: &View, used: All) -> anyhow::Result<()> {
        self.nodes = inspect::nodes(view, None)?;
        self.pods = holdings(view);
        let before = self.used.take();
        for holding in &mut self.pods {
            holding.usage = used.get(&holding.pod).copied();
            let earlier =
                before.as_ref().and_then(|(all, at)| Some((all.get(&holding.pod)?, at.elapsed().as_secs_f64())));
            holding.throttled = holding
                .usage
                .zip(earlier)
                .map(|(now, (then, passed))| ((now.throttled - then.throttled) / passed.max(0.1)).clamp(0.0, 9.99));
        }
        self.used = Some((used, Instant::now()));
        let waits = |uid: &divvy_core::id::PodUid, plan: &divvy_core::Plan| {
            plan.waits.iter().find(|wait| wait.pod == *uid).map(|wait| wait.reason.to_string())
        };
        let plan = divvy_core::schedule(&view.snapshot, &view.policy.scheduling, view.now);
        self.waiting = view
            .snapshot
            .waiting()
            .map(|(_, state)| state.pod())
            .filter(|pod| pod.ask.is_some())
            .map(|pod| (pod.key.to_string(), waits(&pod.uid, &plan).unwrap_or_else(|| "about to be placed".into())))
            .collect();
        self.waiting.sort();
        self.note = None;
        Ok(())
    }

    pub(super) fn note(&mut self, text: &str) {
        self.note = Some(text.to_owned());
    }

    pub(super) fn turn(&mut self) {
        self.focus = if self.focus == Focus::Cards { Focus::Pods } else { Focus::Cards };
    }

    pub(super) fn scroll(&mut self, by: isize) {
        let (first, most) = match self.focus {
            Focus::Cards => (&mut self.first[0], self.nodes.iter().map(|n| n.devices.len()).sum::<usize>()),
            Focus::Pods => (&mut self.first[1], self.pods.len()),
        };
        *first = first.saturating_add_signed(by).min(most.saturating_sub(1));
    }

    /// Lines it takes to show everything.
    pub(super) fn height(&self) -> u16 {
        let cards: usize = self.nodes.iter().map(|node| node.devices.len()).sum();
        u16::try_from(1 + (cards + 3) + (self.pods.len() + 3) + self.queue_height()).unwrap_or(u16::MAX).min(500)
    }

    fn queue_height(&self) -> usize {
        self.waiting.len().clamp(1, 8) + 2
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let cards: usize = self.nodes.iter().map(|node| node.devices.len()).sum();
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(u16::try_from(cards + 3).unwrap_or(u16::MAX)),
            Constraint::Fill(u16::try_from(self.pods.len() + 3).unwrap_or(u16::MAX)),
            Constraint::Length(u16::try_from(self.queue_height()).unwrap_or(10)),
        ])
        .split(frame.area());
        frame.render_widget(Paragraph::new(self.headline()), areas[0]);
        frame.render_widget(self.cards(), areas[1]);
        frame.render_widget(self.holders(), areas[2]);
        frame.render_widget(self.queue(), areas[3]);
    }

    fn headline(&self) -> Line<'static> {
        if let Some(note) = &self.note {
            return Line::from(format!("the cluster does not answer: {note}")).fg(Color::Red);
        }
        let devices = || self.nodes.iter().flat_map(|node| &node.devices);
        let (used, whole) = (devices().map(|d| d.used_memory).sum(), devices().map(|d| d.memory).sum());
        let time: Share = devices().map(held).sum();
        Line::from(format!(
            "{} cards, {time} of their time and {} of their memory allocated; {} pods hold, {} wait   (q leave, tab and arrows move, r look again)",
            devices().count(),
            output::of_memory(used, whole),
            self.pods.len(),
            self.waiting.len(),
        ))
    }

    fn title(&self, name: &str, focus: Focus) -> Block<'static> {
        let style = if self.focus == focus { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        Block::new().borders(Borders::TOP).title(format!(" {name} ")).title_style(style)
    }

    fn cards(&self) -> Table<'static> {
        let rows = self.nodes.iter().flat_map(|node| node.devices.iter().map(move |device| (node, device)));
        let row = |(node, device): (&NodeShown, &DeviceShown)| {
            let (memory, time) =
                ((device.used_memory.0, device.memory.0), (held(device).0.into(), device.share.0.into()));
            Row::new([
                Cell::from(node.name.clone()),
                Cell::from(device.index.to_string()),
                Cell::from(device.model.clone()),
                gauge(memory),
                Cell::from(output::of_memory(device.used_memory, device.memory)),
                gauge(time),
                Cell::from(output::of_share(held(device), device.share)),
                Cell::from(device.pods.len().to_string()),
                Cell::from(device.state.clone()).fg(if device.state == "ok" { Color::Green } else { Color::Red }),
            ])
        };
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(3),
            Constraint::Fill(2),
            Constraint::Length(10),
            Constraint::Length(16),
            Constraint::Length(10),
            Constraint::Length(8),
            Constraint::Length(4),
            Constraint::Fill(1),
        ];
        Table::new(rows.skip(self.first[0]).map(row), widths)
            .header(Row::new(["NODE", "GPU", "MODEL", "MEMORY", "", "SHARE", "", "PODS", "STATE"]).bold())
            .block(self.title("cards", Focus::Cards))
    }

    fn holders(&self) -> Table<'static> {
        let row = |pod: &Holding| {
            Row::new([
                pod.pod.clone(),
                pod.node.clone(),
                pod.cards.to_string(),
                pod.share.to_string(),
                pod.usage.map_or_else(|| "-".into(), |usage| format!("{:.2}", usage.busy)),
                pod.throttled.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0)),
                pod.memory.to_string(),
                pod.usage.map_or_else(|| "-".into(), |usage| usage.memory.to_string()),
                pod.age.clone(),
            ])
        };
        let widths = [
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(5),
            Constraint::Length(6),
            Constraint::Length(6),
            Constraint::Length(9),
            Constraint::Length(10),
            Constraint::Length(10),
            Constraint::Length(6),
        ];
        Table::new(self.pods.iter().skip(self.first[1]).map(row), widths)
            .header(Row::new(["POD", "NODE", "CARDS", "SHARE", "USED", "THROTTLED", "MEMORY", "USED", "SINCE"]).bold())
            .block(self.title("pods", Focus::Pods))
    }

    fn queue(&self) -> Paragraph<'static> {
        let mut lines: Vec<Line<'static>> =
            self.waiting.iter().take(8).map(|(pod, why)| Line::from(format!("{pod}: {why}"))).collect();
        if lines.is_empty() {
            lines.push(Line::from("nobody waits"));
        }
        Paragraph::new(lines)
            .block(Block::new().borders(Borders::TOP).title(format!(" waiting ({}) ", self.waiting.len())))
    }
}

/// Time that is held of a card: all of one that is held alone.
fn held(device: &DeviceShown) -> Share {
    if device.exclusive { device.share } else { device.used_share }
}

fn gauge((used, whole): (u64, u64)) -> Cell<'static> {
    let colour = match used.saturating_mul(100) / whole.max(1) {
        0..70 => Color::Green,
        70..95 => Color::Yellow,
        _ => Color::Red,
    };
    Cell::from(output::bar(used, whole)).fg(colour)
}

fn holdings(view: &View) -> Vec<Holding> {
    let mut all: Vec<Holding> = view
        .snapshot
        .pods()
        .filter_map(|(_, state)| {
            let bound = state.pod().bound()?;
            let charges = state.charges();
            (!charges.is_empty()).then(|| Holding {
                pod: state.pod().key.to_string(),
                node: bound.node.to_string(),
                cards: charges.len(),
                share: charges.iter().map(|(_, c)| if c.exclusive { Share::WHOLE } else { c.share }).sum(),
                memory: charges.iter().map(|(_, c)| c.memory).sum(),
                age: output::duration(view.now.seconds_since(bound.since)),
                usage: None,
                throttled: None,
            })
        })
        .collect();
    all.sort_by(|a, b| b.share.cmp(&a.share).then_with(|| a.pod.cmp(&b.pod)));
    all
}
