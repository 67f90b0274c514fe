//! Tests the demo's screen in a real pseudo-terminal, with a terminal emulator.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtyPair, PtySize, native_pty_system};

const WITHIN: Duration = Duration::from_secs(60);

struct Demo {
    pair: PtyPair,
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    parser: Arc<Mutex<vt100::Parser>>,
    started: Instant,
    /// The terminal's input modes before the demo started, read before the demo can change them.
    modes_before: String,
}

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

impl Demo {
    fn start(arguments: &[&str], no_color: bool) -> Demo {
        let pair = native_pty_system().openpty(size(100, 30)).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(testkit::sandbox::binary().expect("bridger is built"));
        command.arg("demo");
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let modes_before = modes(&*pair.master);
        let started = Instant::now();
        let child = pair.slave.spawn_command(command).expect("bridger starts");
        let parser = Arc::new(Mutex::new(vt100::Parser::new(30, 100, 0)));
        let mut output = pair.master.try_clone_reader().expect("its output");
        let fed = parser.clone();
        // Ends when the last handle of the slave side is closed.
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                fed.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
            }
        });
        let keyboard = pair.master.take_writer().expect("its input");
        Demo { pair, child, keyboard, parser, started, modes_before }
    }

    fn with_screen<R>(&self, look: impl FnOnce(&vt100::Screen) -> R) -> R {
        look(self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    fn text(&self) -> String {
        self.with_screen(vt100::Screen::contents)
    }

    /// Waits until the screen shows all of these at once.
    fn shows(&self, wanted: &[&str]) -> String {
        let deadline = Instant::now() + WITHIN;
        loop {
            let text = self.text();
            let missing: Vec<&&str> = wanted.iter().filter(|word| !text.contains(**word)).collect();
            if missing.is_empty() {
                return text;
            }
            assert!(Instant::now() < deadline, "{missing:?} did not appear:\n{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn resize(&self, cols: u16, rows: u16) {
        // The emulator panics on a wide character in a single column and on a wrapped line in a single row, and a frame
        // of the previous size may still arrive.
        let (shown_rows, shown_cols) = (rows.max(2), cols.max(2));
        self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen_mut().set_size(shown_rows, shown_cols);
        self.pair.master.resize(size(cols, rows)).expect("resizing");
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("typing");
        self.keyboard.flush().expect("typing");
    }

    fn ends(&mut self) -> u32 {
        let deadline = Instant::now() + WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                return status.exit_code();
            }
            assert!(Instant::now() < deadline, "it does not exit:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // No effect if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The terminal's input modes.
fn modes(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios().expect("the terminal's modes"))
}

#[test]
fn the_screen_shows_the_demo_and_q_restores_the_terminal() {
    let mut demo = Demo::start(&["--speed", "300"], false);
    demo.shows(&["Act 1: without Bridger", "esx-1", "Verdict"]);
    let first_frame = demo.started.elapsed();
    assert!(first_frame < Duration::from_secs(2), "the first frame took {first_frame:?}");
    let text = demo.shows(&[
        "esx-1",
        "esx-2",
        "esx-3",
        "esx-4",
        "esx-5",
        "node-1 ",
        "node-15",
        "S shop",
        "C cart",
        "M mail",
        "DRS rules: 0",
        "What just happened",
        "without Bridger",
        "with Bridger",
        "share esx-",
        "availability",
        "q quits",
    ]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(demo.with_screen(|screen| screen.alternate_screen() && screen.hide_cursor()));
    assert_ne!(modes(&*demo.pair.master), demo.modes_before, "the demo must read keys without waiting for a line");
    demo.press(b"q");
    assert_eq!(demo.ends(), 1, "without a verdict the exit code is 1");
    demo.shows(&["Interrupted before the end"]);
    assert!(demo.with_screen(|screen| !screen.alternate_screen() && !screen.hide_cursor()));
    assert_eq!(modes(&*demo.pair.master), demo.modes_before);
}

#[test]
fn the_demo_survives_resizing_and_ctrl_c_quits() {
    let mut demo = Demo::start(&["--speed", "200"], false);
    demo.shows(&["esx-5"]);
    demo.resize(30, 5);
    demo.shows(&["too small"]);
    demo.resize(80, 24);
    demo.shows(&["Act 1", "esx-5", "Verdict"]);
    for (cols, rows) in [(1, 1), (200, 60), (61, 20), (100, 30)] {
        demo.resize(cols, rows);
        std::thread::sleep(Duration::from_millis(120));
    }
    demo.shows(&["Act 1", "esx-1", "esx-5", "Verdict", "q quits"]);
    demo.press(b"\x03");
    assert_eq!(demo.ends(), 1);
    // Its last output may not have reached the emulator yet.
    demo.shows(&["Interrupted before the end"]);
    assert!(demo.with_screen(|screen| !screen.alternate_screen() && !screen.hide_cursor()));
}

#[test]
fn the_demo_exits_by_itself_with_the_table_and_works_without_colour() {
    let mut demo = Demo::start(&["--speed", "1500"], true);
    demo.shows(&["Act 2: with Bridger", "apart "]);
    let is_plain = demo.with_screen(|screen| {
        let cells = (0..30).flat_map(|row| (0..100).filter_map(move |col| screen.cell(row, col)));
        cells.into_iter().all(|cell| cell.fgcolor() == vt100::Color::Default && cell.bgcolor() == vt100::Color::Default)
    });
    assert!(is_plain, "{}", demo.text());
    assert_eq!(demo.ends(), 0);
    demo.shows(&["seed 1", "without Bridger", "with Bridger", "no service was down"]);
    assert!(demo.with_screen(|screen| !screen.alternate_screen()));
}
