//! The demo: one scenario, run without Bridger and with it, shown and measured.
//!
//! - [`story`]: the scripted events, as data. [`stage`]: the embedded world they happen in, and Bridger on it.
//! - [`overview`]: the state of the two servers, seen from outside. [`observer`]: the measurement. [`viewer`]: the
//!   event lines. [`verdict`]: both acts compared.
//! - [`pace`]: virtual time, slowed down to the chosen speed. [`show`], [`screen`], [`panels`], [`terminal`]: output.
//! - [`stay`]: the servers of the second act kept running for kubectl and govc.
//!
//! Invariants: both acts have the same seed and the same events, and the same host fails; only these events are
//! scripted; the history is the same at every speed; the verdict depends only on the state of the two servers.

mod observer;
mod overview;
mod pace;
mod panels;
mod screen;
mod show;
mod stage;
mod stay;
mod story;
mod terminal;
mod verdict;
mod viewer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use simulator::seed::Seed;
use tokio::time::Instant;

pub use pace::Speed;
pub use stay::Stay;
pub use verdict::Verdict;

use self::pace::Pace;
use self::panels::Picture;
use self::screen::Screen;
use self::show::Show;
pub use self::stage::DemoScheduler;
use self::stage::DemoStage;
use self::story::ScriptedEvent;
use self::verdict::DemoFigures;
use self::viewer::{Line, Tone, Viewer};
use crate::failure::Failure;
use crate::say::say;
use crate::signals;

/// Interval of observations, in virtual time.
const STEP: Duration = Duration::from_secs(1);
/// A real wait is split into pieces of this length, so that signals are noticed.
const WAIT_PIECE: Duration = Duration::from_millis(100);
/// How many event lines are kept for the screen.
const LINES_KEPT: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Without,
    With,
}

impl Act {
    fn title(self) -> &'static str {
        match self {
            Act::Without => "Act 1: without Bridger",
            Act::With => "Act 2: with Bridger",
        }
    }
}

/// How the demo is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    Screen,
    Lines,
    /// Only the result is printed.
    Silent,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub speed: Speed,
    /// What schedules pods in the second act.
    pub scheduler: DemoScheduler,
    pub display: Display,
    pub stay: Option<Stay>,
}

/// A single-threaded runtime on a paused clock: time is virtual.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| Failure::run(format!("cannot start the runtime: {error}")))
}

/// Runs both acts; returns the verdict, or `None` if the user quit before the end.
pub async fn play(options: &Options) -> Result<Option<Verdict>, Failure> {
    // Ports are bound first, so that a port in use is reported immediately.
    let listeners = match &options.stay {
        Some(stay) => Some(stay::Listeners::bind(stay).await?),
        None => None,
    };
    let show = match options.display {
        Display::Screen => Show::Screen(Box::new(Screen::open()?)),
        Display::Lines => Show::Lines,
        Display::Silent => Show::Nothing,
    };
    let mut demo_run = DemoRun {
        seed: options.seed,
        scheduler: options.scheduler,
        show,
        pace: Pace::new(options.speed),
        speed: options.speed,
        lines: VecDeque::new(),
        figures: [None, None],
        interrupted: listen_for_signals(),
    };
    let Some((without, first)) = demo_run.play(Act::Without, None).await? else { return Ok(None) };
    let failing_host = first.failing_host().map(str::to_owned);
    drop(first);
    let Some((with, second)) = demo_run.play(Act::With, failing_host).await? else { return Ok(None) };
    let verdict = Verdict { seed: options.seed, without, with };
    if let (Some(listeners), Some(stay)) = (listeners, &options.stay) {
        if options.display == Display::Lines {
            say(&format!("\n{}\n{}\n", verdict.table(), verdict.sentence()));
        }
        demo_run.stay(second, listeners, stay).await?;
    }
    Ok(Some(verdict))
}

/// Set once by Ctrl-C or SIGTERM.
fn listen_for_signals() -> Arc<AtomicBool> {
    let flag = Arc::<AtomicBool>::default();
    let set = flag.clone();
    tokio::spawn(async move {
        signals::interrupted().await;
        set.store(true, Ordering::Relaxed);
    });
    flag
}

struct DemoRun {
    seed: u64,
    scheduler: DemoScheduler,
    show: Show,
    pace: Pace,
    speed: Speed,
    lines: VecDeque<Line>,
    /// Figures of both acts, as far as they have run.
    figures: [Option<DemoFigures>; 2],
    interrupted: Arc<AtomicBool>,
}

impl DemoRun {
    /// Runs one act; returns its figures and its stage, or `None` if the user quit.
    async fn play(
        &mut self,
        act: Act,
        failing_host: Option<String>,
    ) -> Result<Option<(DemoFigures, DemoStage)>, Failure> {
        self.show.heading(act.title());
        self.lines.clear();
        let mut stage =
            DemoStage::set(Seed(self.seed), (act == Act::With).then_some(self.scheduler), failing_host).await?;
        let mut viewer = Viewer::default();
        let began = Instant::now();
        let mut moments = story::story(Seed(self.seed)).into_iter().peekable();
        loop {
            let passed = began.elapsed();
            while let Some(moment) = moments.next_if(|moment| moment.at <= passed) {
                if moment.event == ScriptedEvent::End {
                    let figures = viewer.end();
                    self.figures[act as usize] = Some(figures);
                    self.draw(act, passed, &viewer, None);
                    return Ok(Some((figures, stage)));
                }
                let text = stage.perform(&moment.event)?;
                self.add_line(Line { at: passed, tone: Tone::Event, text });
            }
            tokio::time::sleep_until(began + passed + STEP).await;
            let passed = began.elapsed();
            for line in viewer.look(stage.world(), passed) {
                self.add_line(line);
            }
            self.figures[act as usize] = Some(viewer.figures());
            if self.pace.step(STEP) {
                self.draw(act, passed, &viewer, None);
                if self.wait_for_real_time().await {
                    return Ok(None);
                }
            }
        }
    }

    fn add_line(&mut self, line: Line) {
        self.show.line(&line);
        self.lines.push_back(line);
        if self.lines.len() > LINES_KEPT {
            self.lines.pop_front();
        }
    }

    fn draw(&mut self, act: Act, passed: Duration, viewer: &Viewer, invitation: Option<&str>) {
        let picture = Picture {
            act,
            seed: self.seed,
            speed: self.speed,
            passed,
            overview: viewer.overview(),
            lines: &self.lines,
            figures: self.figures,
            invitation,
        };
        self.show.draw(&picture);
    }

    /// Waits until the wall clock has caught up; returns whether the user wants to quit.
    async fn wait_for_real_time(&mut self) -> bool {
        if self.show.quit_requested() || self.interrupted.load(Ordering::Relaxed) {
            return true;
        }
        loop {
            let ahead = self.pace.ahead();
            if ahead.is_zero() {
                return false;
            }
            let has_quit = pace::hold(self.show.waiter(ahead.min(WAIT_PIECE))).await.unwrap_or(true);
            if has_quit || self.interrupted.load(Ordering::Relaxed) {
                return true;
            }
        }
    }
}
