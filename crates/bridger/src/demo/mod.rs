//! The demo: one story, played without Bridger and with it, shown and measured.
//!
//! - [`story`]: what happens when, as data. [`stage`]: the embedded world it happens in, and Bridger on it.
//! - [`overview`]: what an outsider sees of the two servers. [`observer`]: what is measured from that. [`viewer`]: what is
//!   told of it. [`verdict`]: both acts compared.
//! - [`pace`]: virtual time, held back for people. [`show`], [`screen`], [`panels`], [`terminal`]: how it is shown.
//! - [`stay`]: the second act's world kept open for kubectl and govc.
//!
//! Invariants: both acts have the same seed and the same events, and the same host fails; nothing but these events is
//! scripted; the history is the same at every speed; the verdict rests on the state of the two servers alone.

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
pub use self::stage::Places;
use self::stage::Stage;
use self::story::ScriptedEvent;
use self::verdict::Figures;
use self::viewer::{Line, Tone, Viewer};
use crate::failure::Failure;
use crate::say::say;
use crate::signals;

/// How often the world is looked at, in virtual time.
const STEP: Duration = Duration::from_secs(1);
/// A real wait is cut into pieces of this length, so that a signal is heard.
const WAIT_PIECE: Duration = Duration::from_millis(100);
/// How many lines the screen may look back on.
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

/// How the story is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Screen,
    Lines,
    /// Only the verdict is wanted.
    Silent,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub speed: Speed,
    /// Who places pods in the second act.
    pub scheduler: Places,
    pub manner: Manner,
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

/// Plays both acts; answers the verdict, or `None` if somebody left before the end.
pub async fn play(options: &Options) -> Result<Option<Verdict>, Failure> {
    // Ports are taken before the story, so that one in use is told at once.
    let listeners = match &options.stay {
        Some(stay) => Some(stay::Listeners::bind(stay).await?),
        None => None,
    };
    let show = match options.manner {
        Manner::Screen => Show::Screen(Box::new(Screen::open()?)),
        Manner::Lines => Show::Lines,
        Manner::Silent => Show::Nothing,
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
    let casualty = first.casualty().map(str::to_owned);
    drop(first);
    let Some((with, second)) = demo_run.play(Act::With, casualty).await? else { return Ok(None) };
    let verdict = Verdict { seed: options.seed, without, with };
    if let (Some(listeners), Some(stay)) = (listeners, &options.stay) {
        if options.manner == Manner::Lines {
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
    scheduler: Places,
    show: Show,
    pace: Pace,
    speed: Speed,
    lines: VecDeque<Line>,
    /// Of both acts, as far as they have got.
    figures: [Option<Figures>; 2],
    interrupted: Arc<AtomicBool>,
}

impl DemoRun {
    /// Plays one act; answers its figures and its stage, or `None` if somebody left.
    async fn play(&mut self, act: Act, casualty: Option<String>) -> Result<Option<(Figures, Stage)>, Failure> {
        self.show.heading(act.title());
        self.lines.clear();
        let mut stage = Stage::set(Seed(self.seed), (act == Act::With).then_some(self.scheduler), casualty).await?;
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
                self.tell(Line { at: passed, tone: Tone::Event, text });
            }
            tokio::time::sleep_until(began + passed + STEP).await;
            let passed = began.elapsed();
            for line in viewer.look(stage.world(), passed) {
                self.tell(line);
            }
            self.figures[act as usize] = Some(viewer.figures());
            if self.pace.step(STEP) {
                self.draw(act, passed, &viewer, None);
                if self.hold_back().await {
                    return Ok(None);
                }
            }
        }
    }

    fn tell(&mut self, line: Line) {
        self.show.tell(&line);
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

    /// Waits until the wall clock has caught up; answers whether somebody wants to leave.
    async fn hold_back(&mut self) -> bool {
        if self.show.is_left() || self.interrupted.load(Ordering::Relaxed) {
            return true;
        }
        loop {
            let ahead = self.pace.ahead();
            if ahead.is_zero() {
                return false;
            }
            let is_left = pace::hold(self.show.waiter(ahead.min(WAIT_PIECE))).await.unwrap_or(true);
            if is_left || self.interrupted.load(Ordering::Relaxed) {
                return true;
            }
        }
    }
}
