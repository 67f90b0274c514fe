//! Takes over the terminal for the screen, and restores it even after a panic.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Once;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The alternate screen in raw mode; dropping it restores the terminal.
pub struct Takeover {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Takeover {
    pub fn begin() -> io::Result<Takeover> {
        restore_on_panic();
        enable_raw_mode()?;
        let taken = execute!(stdout(), EnterAlternateScreen).and_then(|()| {
            let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
            terminal.hide_cursor()?;
            Ok(terminal)
        });
        match taken {
            Ok(terminal) => Ok(Takeover { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        restore();
    }
}

/// Errors are ignored: nothing can be done if the terminal is closed.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// In a release build a panic aborts without dropping anything, so the panic hook restores the terminal.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
