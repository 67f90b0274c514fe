//! The screen: frames on the terminal, and the keys that quit.

use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::panels::{Paint, Picture, render};
use super::terminal::Takeover;
use crate::failure::Failure;

pub struct Screen {
    takeover: Takeover,
    paint: Paint,
}

impl Screen {
    pub fn open() -> Result<Screen, Failure> {
        let takeover = Takeover::begin()
            .map_err(|error| Failure::run(format!("cannot draw on this terminal ({error}); use --headless")))?;
        let is_colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ok(Screen { takeover, paint: Paint { in_colour: !is_colourless } })
    }

    pub fn draw(&mut self, picture: &Picture<'_>) {
        let paint = self.paint;
        // If the terminal closes, its hang-up signal ends the process.
        let _ = self.takeover.terminal.draw(|frame| render(frame, picture, paint));
    }

    /// Waits up to `at_most` for `q` or Ctrl-C; returns whether one was pressed.
    pub fn wait(at_most: Duration) -> bool {
        let until = std::time::Instant::now() + at_most;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match event::poll(left) {
                Ok(true) => match event::read() {
                    Ok(event) if is_quit_key(&event) => return true,
                    Ok(_) => (),
                    Err(_) => return true,
                },
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }
}

fn is_quit_key(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (interrupts || matches!(key.code, KeyCode::Char('q' | 'Q')))
}
