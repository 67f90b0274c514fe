//! A frame of the screen: hosts as columns, VMs in them, pods as letters; rules; recent events; figures of both acts.
//!
//! Input: a [`Picture`]. Output: a frame for a terminal of any size, designed for 100 by 30. Drawing makes no decisions
//! and keeps no state, so resizing needs only another frame. Without colour the important information remains visible:
//! replicas that share a host are drawn in reverse video.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Wrap};

use super::Act;
use super::overview::{HostOverview, HostState, Overview, VmOverview};
use super::pace::Speed;
use super::show::clock;
use super::story::SERVICES;
use super::verdict::{DemoFigures, ROWS};
use super::viewer::{Line, Tone};

/// The content of a frame.
pub struct Picture<'a> {
    pub act: Act,
    pub seed: u64,
    pub speed: Speed,
    pub passed: Duration,
    pub overview: &'a Overview,
    pub lines: &'a VecDeque<Line>,
    /// Figures of act 1 and act 2, as far as they have run.
    pub figures: [Option<DemoFigures>; 2],
    /// What to type in another terminal, with `--stay`.
    pub invitation: Option<&'a str>,
}

const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 20;

/// Styles, with or without colour.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    pub in_colour: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.in_colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn service(self, service: &str) -> Style {
        let colours = [Color::Cyan, Color::Yellow, Color::Magenta];
        match SERVICES.iter().position(|(name, _)| *name == service) {
            Some(index) => self.colour(colours[index % colours.len()]).add_modifier(Modifier::BOLD),
            None => self.dim(),
        }
    }

    fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Event => self.bold(),
            Tone::Quiet => Style::new(),
            Tone::Good => self.colour(Color::Green),
            Tone::Bad => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

pub fn render(frame: &mut Frame<'_>, picture: &Picture<'_>, paint: Paint) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!("{}x{} is too small; it needs {WIDTH_MIN}x{HEIGHT_MIN}. q quits.", area.width, area.height);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let [title, hosts, middle, bottom, legend] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Length(if area.height < 28 { 6 } else { 8 }),
        Constraint::Length(8),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(title_line(picture, paint), title);
    draw_hosts(frame, hosts, picture.overview, paint);
    let [events, rules] = Layout::horizontal([Constraint::Percentage(68), Constraint::Fill(1)]).areas(middle);
    draw_events(frame, events, picture.lines, paint);
    draw_rules(frame, rules, picture.overview, paint);
    let [figures, note] = Layout::horizontal([Constraint::Length(62), Constraint::Fill(1)]).areas(bottom);
    draw_figures(frame, figures, picture, paint);
    let (heading, text) = match picture.invitation {
        None => (" Why ", why(picture.act)),
        Some(invitation) => (" In another terminal ", invitation),
    };
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(panel(heading, paint)), note);
    frame.render_widget(legend_line(picture.overview, paint), legend);
}

/// The explanation for the "Why" panel.
fn why(act: Act) -> &'static str {
    match act {
        Act::Without => {
            "Kubernetes keeps replicas on different nodes, but does not see the physical hosts. DRS moves nodes to \
             balance load, but does not see the pods."
        }
        Act::With => {
            "Bridger labels nodes with their host, creates DRS rules that keep replicas on different hosts, and shows \
             the scheduler the physical hosts."
        }
    }
}

fn panel(title: &str, paint: Paint) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(paint.dim()).title(title)
}

fn title_line(picture: &Picture<'_>, paint: Paint) -> TextLine<'static> {
    let act = match picture.invitation {
        None => picture.act.title().to_owned(),
        Some(_) => "Act 2 continues, with Bridger".to_owned(),
    };
    let speed = match (picture.invitation, picture.speed) {
        (Some(_), _) => "real time".to_owned(),
        (None, speed) => speed.to_string(),
    };
    TextLine::from(vec![
        Span::styled(format!(" {act} "), paint.bold().add_modifier(Modifier::REVERSED)),
        Span::raw(format!("  {}  ", clock(picture.passed))),
        Span::styled(format!("{speed}, seed {}", picture.seed), paint.dim()),
    ])
}

fn draw_hosts(frame: &mut Frame<'_>, area: Rect, overview: &Overview, paint: Paint) {
    let columns = Layout::horizontal(vec![Constraint::Fill(1); overview.hosts.len()]).split(area);
    let sharings = overview.sharings();
    for (host, column) in overview.hosts.iter().zip(columns.iter()) {
        let here = sharings.iter().filter(|sharing| sharing.host == host.name);
        let shared: BTreeSet<&str> = here.map(|sharing| sharing.service.as_str()).collect();
        draw_host(frame, *column, host, &shared, paint);
    }
}

fn draw_host(frame: &mut Frame<'_>, area: Rect, host: &HostOverview, shared: &BTreeSet<&str>, paint: Paint) {
    let (state, style) = match host.state {
        HostState::Up if shared.is_empty() => ("", paint.dim()),
        HostState::Up => ("", paint.colour(Color::Red)),
        HostState::EnteringMaintenance => ("evacuating ", paint.colour(Color::Yellow)),
        HostState::InMaintenance => ("maintenance ", paint.colour(Color::Yellow)),
        HostState::Failed => ("FAILED ", paint.colour(Color::Red).add_modifier(Modifier::BOLD)),
    };
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(style);
    let block = block.title(Span::styled(format!(" {} {state}", host.name), style.remove_modifier(Modifier::DIM)));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut rows = vec![load_line(host, inner.width, paint)];
    let vms_shown = usize::from(inner.height).saturating_sub(1);
    let is_cut = host.vms.len() > vms_shown;
    let shown = if is_cut { vms_shown.saturating_sub(1) } else { vms_shown };
    rows.extend(host.vms.iter().take(shown).map(|vm| vm_line(vm, shared, paint)));
    if is_cut {
        rows.push(TextLine::styled(format!("and {} more", host.vms.len() - shown), paint.dim()));
    }
    frame.render_widget(Paragraph::new(rows), inner);
}

fn load_line(host: &HostOverview, width: u16, paint: Paint) -> TextLine<'static> {
    let room = usize::from(width).saturating_sub(9);
    let filled = usize::try_from(host.cpu_percent).unwrap_or(0).min(100) * room / 100;
    let bar = format!("cpu {}{}", "▪".repeat(filled), "·".repeat(room - filled));
    TextLine::styled(format!("{bar} {:>3}%", host.cpu_percent), paint.dim())
}

fn vm_line(vm: &VmOverview, shared: &BTreeSet<&str>, paint: Paint) -> TextLine<'static> {
    let name_style = if vm.has_power { Style::new() } else { paint.dim().add_modifier(Modifier::CROSSED_OUT) };
    let mut spans = vec![Span::styled(format!("{:<8}", vm.name), name_style)];
    for pod in &vm.pods {
        let mut letter = pod.service.chars().take(1).collect::<String>();
        let mut style = paint.service(&pod.service);
        if pod.has_anti_affinity {
            letter = letter.to_uppercase();
        }
        if !pod.is_ready || !vm.has_power {
            style = paint.dim();
        }
        if pod.has_anti_affinity && vm.has_power && pod.is_running && shared.contains(pod.service.as_str()) {
            style = paint.colour(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD);
        }
        spans.push(Span::styled(letter, style));
        spans.push(Span::raw(" "));
    }
    let mark = match (vm.has_power, vm.is_moving) {
        (false, _) => "off",
        (true, true) => "moving",
        (true, false) => "",
    };
    spans.push(Span::styled(mark, paint.dim()));
    TextLine::from(spans)
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, lines: &VecDeque<Line>, paint: Paint) {
    let block = panel(" What just happened ", paint);
    let room = usize::from(block.inner(area).height);
    let skip = lines.len().saturating_sub(room);
    let rows: Vec<TextLine<'_>> = lines
        .iter()
        .skip(skip)
        .map(|line| {
            let time = Span::styled(format!("{} ", &clock(line.at)[3..]), paint.dim());
            TextLine::from(vec![time, Span::styled(line.text.as_str(), paint.tone(line.tone))])
        })
        .collect();
    frame.render_widget(Paragraph::new(rows).block(block), area);
}

fn draw_rules(frame: &mut Frame<'_>, area: Rect, overview: &Overview, paint: Paint) {
    let title = format!(" DRS rules: {} ", overview.rules.len());
    let rows: Vec<TextLine<'_>> = overview
        .rules
        .iter()
        .map(|rule| {
            let numbers: Vec<&str> = rule.vms.iter().map(|vm| vm.strip_prefix("node-").unwrap_or(vm)).collect();
            let mut spans = vec![Span::raw(format!("apart {} ", numbers.join(" ")))];
            for service in &rule.services {
                spans.push(Span::styled(format!("{service} "), paint.service(service)));
            }
            TextLine::from(spans)
        })
        .collect();
    let text = if rows.is_empty() {
        Paragraph::new("none: DRS moves VMs freely").style(paint.dim())
    } else {
        Paragraph::new(rows)
    };
    frame.render_widget(text.block(panel(&title, paint)), area);
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>, paint: Paint) {
    let cells = |act: Act| picture.figures[act as usize].map(|figures| figures.cells());
    let (without, with) = (cells(Act::Without), cells(Act::With));
    let header = format!("{:<26}{:>16}{:>16}", "", "without Bridger", "with Bridger");
    let mut rows = vec![TextLine::styled(header, paint.bold())];
    for (row, name) in ROWS.iter().enumerate() {
        let cell = |cells: &Option<[String; ROWS.len()]>| cells.as_ref().map_or("-".to_owned(), |all| all[row].clone());
        // The first two rows should be 0: any other value is bad.
        let style = |cells: &Option<[String; ROWS.len()]>| match cells {
            Some(all) if row < 2 && all[row] == "0 s" => paint.colour(Color::Green),
            Some(_) if row < 2 => paint.colour(Color::Red).add_modifier(Modifier::BOLD),
            _ => Style::new(),
        };
        rows.push(TextLine::from(vec![
            Span::raw(format!("{name:<26}")),
            Span::styled(format!("{:>16}", cell(&without)), style(&without)),
            Span::styled(format!("{:>16}", cell(&with)), style(&with)),
        ]));
    }
    frame.render_widget(Paragraph::new(rows).block(panel(" Verdict so far ", paint)), area);
}

fn legend_line(overview: &Overview, paint: Paint) -> TextLine<'static> {
    let mut spans = vec![Span::raw(" ")];
    for service in overview.desired.keys() {
        let letter: String = service.chars().take(1).collect::<String>().to_uppercase();
        spans.push(Span::styled(letter, paint.service(service)));
        spans.push(Span::raw(format!(" {service}  ")));
    }
    spans.push(Span::styled("b batch   ", paint.dim()));
    spans.push(Span::styled("X", paint.colour(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD)));
    spans.push(Span::raw(" replicas share this host   "));
    spans.push(Span::styled("q", paint.bold()));
    spans.push(Span::raw(" quits"));
    TextLine::from(spans)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::overview::{PodOverview, RuleOverview};
    use super::*;

    fn overview() -> Overview {
        let pod = |service: &str| PodOverview {
            service: service.to_owned(),
            has_anti_affinity: service != "batch",
            is_running: true,
            is_ready: true,
        };
        let vm = |number: usize| VmOverview {
            name: format!("node-{number}"),
            has_power: true,
            is_moving: number == 3,
            pods: vec![pod("shop"), pod("batch")],
        };
        let host = |number: usize, vms: Vec<VmOverview>| HostOverview {
            name: format!("esx-{number}"),
            state: if number == 2 { HostState::Failed } else { HostState::Up },
            cpu_percent: 40,
            vms,
        };
        let rule = RuleOverview {
            name: "bridger-1".to_owned(),
            vms: vec!["node-1".to_owned(), "node-2".to_owned()],
            services: vec!["shop".to_owned()],
        };
        Overview {
            hosts: vec![host(1, vec![vm(1), vm(2)]), host(2, vec![]), host(3, (3..40).map(vm).collect())],
            rules: vec![rule],
            desired: [("shop".to_owned(), 2)].into_iter().collect(),
        }
    }

    fn shown(width: u16, height: u16, invitation: Option<&str>, paint: Paint) -> Terminal<TestBackend> {
        let lines =
            VecDeque::from([Line { at: Duration::from_secs(61), tone: Tone::Bad, text: "shop is down".into() }]);
        let picture = Picture {
            act: Act::With,
            seed: 7,
            speed: Speed::Max,
            passed: Duration::from_secs(62),
            overview: &overview(),
            lines: &lines,
            figures: [Some(DemoFigures::default()), None],
            invitation,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| render(frame, &picture, paint)).unwrap();
        terminal
    }

    #[test]
    fn a_terminal_of_100_by_30_shows_everything() {
        let text = shown(100, 30, None, Paint { in_colour: true }).backend().to_string();
        for expected in [
            "Act 2: with Bridger",
            "00:01:02",
            "seed 7",
            "esx-1",
            "esx-2 FAILED",
            "node-1  S b",
            "moving",
            "and 29 more",
            "01:01 shop is down",
            "DRS rules: 1",
            "apart 1 2 shop",
            "without Bridger",
            "100.00 %",
            "S shop",
            "q quits",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
        }
    }

    #[test]
    fn every_terminal_size_can_be_drawn() {
        for width in (1..140).step_by(7) {
            for height in 1..50 {
                shown(width, height, Some(". /tmp/x/env"), Paint { in_colour: true });
            }
        }
    }

    #[test]
    fn sharing_is_visible_without_colour() {
        let terminal = shown(100, 30, None, Paint { in_colour: false });
        let buffer = terminal.backend().buffer();
        assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        let reversed = buffer.content().iter().filter(|cell| cell.symbol() == "S");
        assert!(reversed.filter(|cell| cell.modifier.contains(Modifier::REVERSED)).count() >= 2);
    }
}
