//! `cargo xtask picture`: renders the demo's screen as an SVG, from a real run in a pseudo-terminal.
//!
//! In: `bridger demo`, built and run here. Out: docs/demo.svg, one frame of the second act while a host has failed.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::workspace::{self, succeed};

/// Renders the picture of the demo's screen for the documentation
#[derive(clap::Args)]
pub struct Arguments {
    /// The output file
    #[arg(long, default_value = "docs/demo.svg", value_name = "FILE")]
    output: PathBuf,
    /// The demo's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const COLUMNS: u16 = 100;
const ROWS: u16 = 30;
/// Text that the frame must contain: with Bridger, a failed host, and HA restarting its VMs.
const WANTED: [&str; 3] = ["Act 2: with Bridger", "FAILED", "HA restarts"];
const WITHIN: Duration = Duration::from_secs(300);

pub fn run(arguments: &Arguments) -> Result<()> {
    succeed(workspace::cargo().args(["build", "--package", "bridger"]))?;
    let screen = capture(arguments.seed)?;
    let path = workspace::root().join(&arguments.output);
    std::fs::write(&path, svg(&screen)).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn capture(seed: u64) -> Result<vt100::Screen> {
    let size = PtySize { rows: ROWS, cols: COLUMNS, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).context("opening a pseudo-terminal")?;
    let mut command = CommandBuilder::new(workspace::target().join("debug/bridger"));
    command.args(["demo", "--seed", &seed.to_string()]);
    command.env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR");
    let mut child = pair.slave.spawn_command(command).context("starting bridger")?;
    // So that reading ends when bridger exits.
    drop(pair.slave);
    let mut output = pair.master.try_clone_reader().context("reading the terminal")?;
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    let deadline = Instant::now() + WITHIN;
    let mut buffer = [0; 8192];
    let mut found = None;
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        parser.process(&buffer[..count]);
        let text = parser.screen().contents();
        let is_wanted = WANTED.iter().all(|word| text.contains(word));
        if is_wanted {
            found = Some(parser.screen().clone());
        } else if found.is_some() || Instant::now() > deadline {
            // The last matching frame is complete, because a later frame has arrived.
            break;
        }
    }
    child.kill().context("stopping bridger")?;
    child.wait().context("waiting for bridger")?;
    match found {
        Some(screen) => Ok(screen),
        None => bail!("no frame shows {WANTED:?}; the last one:\n{}", parser.screen().contents()),
    }
}

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 18.0;
const MARGIN: f64 = 12.0;
const BACKGROUND: &str = "#10141b";
const FOREGROUND: &str = "#d7dce2";

/// Adjacent cells of a row with the same style.
struct Run {
    column: u16,
    text: String,
    look: Look,
}

#[derive(Clone, PartialEq)]
struct Look {
    ink: String,
    paper: Option<String>,
    bold: bool,
    faint: bool,
}

fn svg(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let width = f64::from(columns) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL_HEIGHT + 2.0 * MARGIN;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">"#
    );
    let _ = writeln!(svg, r#"<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>"#);
    for row in 0..rows {
        for run in runs(screen, row, columns) {
            let x = f64::from(run.column) * CELL_WIDTH + MARGIN;
            let top = f64::from(row) * CELL_HEIGHT + MARGIN;
            let length = run.text.chars().count() as f64 * CELL_WIDTH;
            if let Some(paper) = &run.look.paper {
                let _ = writeln!(
                    svg,
                    r#"<rect x="{x:.1}" y="{top:.1}" width="{length:.1}" height="{CELL_HEIGHT}" fill="{paper}"/>"#
                );
            }
            if run.text.trim().is_empty() {
                continue;
            }
            let weight = if run.look.bold { r#" font-weight="bold""# } else { "" };
            let opacity = if run.look.faint { r#" opacity="0.6""# } else { "" };
            let _ = writeln!(
                svg,
                r#"<text x="{x:.1}" y="{:.1}" textLength="{length:.1}" fill="{}"{weight}{opacity} xml:space="preserve">{}</text>"#,
                top + CELL_HEIGHT * 0.75,
                run.look.ink,
                escaped(&run.text)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn runs(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        let text = if cell.contents().is_empty() { " " } else { cell.contents() };
        let look = look(cell);
        match runs.last_mut() {
            Some(last) if last.look == look => last.text.push_str(text),
            _ => runs.push(Run { column, text: text.to_owned(), look }),
        }
    }
    runs
}

fn look(cell: &vt100::Cell) -> Look {
    let (ink, paper) = (colour(cell.fgcolor()), colour(cell.bgcolor()));
    let (ink, paper) = if cell.inverse() {
        (paper.unwrap_or(BACKGROUND), Some(ink.unwrap_or(FOREGROUND)))
    } else {
        (ink.unwrap_or(FOREGROUND), paper)
    };
    Look { ink: ink.to_owned(), paper: paper.map(str::to_owned), bold: cell.bold(), faint: cell.dim() }
}

/// The colours of a dark terminal. The demo uses only the sixteen standard colours.
fn colour(colour: vt100::Color) -> Option<&'static str> {
    const PALETTE: [&str; 8] = ["#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dce2"];
    match colour {
        vt100::Color::Idx(index) => PALETTE.get(usize::from(index % 8)).copied(),
        vt100::Color::Default | vt100::Color::Rgb(..) => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_colours_and_reverse_are_kept() {
        let mut parser = vt100::Parser::new(2, 10, 0);
        parser.process(b"\x1b[31ma<b\x1b[0m \x1b[7mX\x1b[0m");
        let picture = svg(parser.screen());
        assert!(picture.contains(r##"fill="#e06c75" xml:space="preserve">a&lt;b</text>"##), "{picture}");
        let paper = format!(r#"height="{CELL_HEIGHT}" fill="{FOREGROUND}"/>"#);
        assert!(picture.contains(&paper), "{picture}");
    }
}
