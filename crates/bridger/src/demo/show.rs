//! The output of the demo: the screen, plain lines, or nothing.

use std::time::Duration;

use super::panels::Picture;
use super::screen::Screen;
use super::viewer::{Line, Tone};
use crate::say::say;

pub enum Show {
    /// Only the result is printed.
    Nothing,
    Lines,
    Screen(Box<Screen>),
}

impl Show {
    pub fn line(&mut self, line: &Line) {
        if let Show::Lines = self {
            let mark = match line.tone {
                Tone::Event => '>',
                Tone::Quiet => ' ',
                Tone::Good => '+',
                Tone::Bad => '!',
            };
            say(&format!("{} {mark} {}", clock(line.at), line.text));
        }
    }

    pub fn heading(&mut self, text: &str) {
        if let Show::Lines = self {
            say(&format!("\n{text}"));
        }
    }

    pub fn draw(&mut self, picture: &Picture<'_>) {
        if let Show::Screen(screen) = self {
            screen.draw(picture);
        }
    }

    /// A function that waits in real time and returns whether the user wants to quit.
    pub fn waiter(&self, wait: Duration) -> Box<dyn FnOnce() -> bool + Send> {
        match self {
            Show::Screen(_) => Box::new(move || Screen::wait(wait)),
            Show::Nothing | Show::Lines => Box::new(move || {
                std::thread::sleep(wait);
                false
            }),
        }
    }

    /// Whether the user wants to quit; does not wait.
    pub fn quit_requested(&self) -> bool {
        matches!(self, Show::Screen(_)) && Screen::wait(Duration::ZERO)
    }
}

/// `00:12:31`.
pub fn clock(passed: Duration) -> String {
    let seconds = passed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
