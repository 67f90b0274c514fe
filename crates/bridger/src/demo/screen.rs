//! The screen: a terminal taken over for frames, and the keys that leave it.

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
            .map_err(|error| Failure::run(format!("this terminal can't be drawn on ({error}); try --headless")))?;
        let is_colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ok(Screen { takeover, paint: Paint { in_colour: !is_colourless } })
    }

    pub fn draw(&mut self, picture: &Picture<'_>) {
        let paint = self.paint;
        // A terminal that is gone ends the story by its hang-up signal.
        let _ = self.takeover.terminal.draw(|frame| render(frame, picture, paint));
    }

    /// Waits, at most so long, for `q` or Ctrl-C; answers whether one was pressed.
    pub fn wait(at_most: Duration) -> bool {
        let until = std::time::Instant::now() + at_most;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match event::poll(left) {
                Ok(true) => match event::read() {
                    Ok(event) if leaves(&event) => return true,
                    Ok(_) => (),
                    Err(_) => return true,
                },
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }
}

fn leaves(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (interrupts || matches!(key.code, KeyCode::Char('q' | 'Q')))
}
