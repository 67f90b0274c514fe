//! The terminal: taken over for the screen, and given back whatever happens.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Once;

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The alternate screen in raw mode; dropping it gives the terminal back.
pub struct Takeover {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Takeover {
    pub fn begin() -> io::Result<Takeover> {
        give_back_on_panic();
        enable_raw_mode()?;
        let taken = execute!(stdout(), EnterAlternateScreen).and_then(|()| {
            let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
            terminal.hide_cursor()?;
            Ok(terminal)
        });
        match taken {
            Ok(terminal) => Ok(Takeover { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        give_back();
    }
}

/// Nothing can be done about a terminal that is gone.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// In a release build a panic ends the process without dropping anything, so the hook has to do it.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
