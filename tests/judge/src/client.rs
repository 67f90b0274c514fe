//! Runs the judge as a child process. Each request and each reply is one line of JSON.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use peers::{Peers, PeersError};
use serde::{Deserialize, Serialize};

use crate::{Answer, World};

/// The first world of a configuration takes about 10 ms, later ones about 1 ms. The limit leaves room for a loaded
/// machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const STDERR_LINES_KEPT: usize = 30;

#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error("starting {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("the judge rejected the request: {0}")]
    Rejected(String),
    #[error("the judge did not answer within {} s; its last lines on stderr:\n{stderr_tail}", ANSWER_WITHIN.as_secs())]
    TimedOut { stderr_tail: String },
    #[error("the judge has exited; its last lines on stderr:\n{stderr_tail}")]
    Exited { stderr_tail: String },
    #[error("the judge's answer cannot be parsed: {source}: {line}")]
    Unparsable { line: String, source: serde_json::Error },
}

/// A running judge. It exits when this value is dropped, and when this process exits, because its stdin closes then.
#[derive(Debug)]
pub struct Judge {
    process: Child,
    /// `None` once the judge should exit.
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    errors: Arc<Mutex<VecDeque<String>>>,
    asked: u64,
}

impl Judge {
    /// Starts `scheduler-judge` from the test peers.
    pub fn start() -> Result<Judge, JudgeError> {
        Judge::start_program(&Peers::locate()?.program("scheduler-judge"))
    }

    pub fn start_program(program: &Path) -> Result<Judge, JudgeError> {
        let starting = |source| JudgeError::Start { program: program.display().to_string(), source };
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(starting)?;
        let input = process.stdin.take();
        // There is one answer per request, so a capacity of one is enough.
        let (sender, answers) = sync_channel(1);
        if let Some(output) = process.stdout.take() {
            thread::spawn(move || forward(BufReader::new(output), &sender));
        }
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(output) = process.stderr.take() {
            let errors = Arc::clone(&errors);
            thread::spawn(move || keep_tail(BufReader::new(output), &errors));
        }
        Ok(Judge { process, input, answers, errors, asked: 0 })
    }

    /// The verdicts and scores of kube-scheduler's plugins for the world.
    pub fn ask(&mut self, world: &World) -> Result<Answer, JudgeError> {
        self.ask_request(world, false)
    }

    /// As [`Judge::ask`], with the API server's validation errors for the world in `Answer::invalid`.
    pub fn ask_and_validate(&mut self, world: &World) -> Result<Answer, JudgeError> {
        self.ask_request(world, true)
    }

    fn ask_request(&mut self, world: &World, validate: bool) -> Result<Answer, JudgeError> {
        self.asked += 1;
        let request = Request { id: self.asked, validate, world };
        let request = serde_json::to_string(&request).map_err(|error| JudgeError::Rejected(error.to_string()))?;
        let line = self.ask_line(&request)?;
        let unparsable = |source| JudgeError::Unparsable { line: line.clone(), source };
        let reply: Reply = serde_json::from_str(&line).map_err(unparsable)?;
        if reply.id != self.asked {
            // Has never happened. An answer to another request must not be mistaken for this one's.
            return Err(JudgeError::Rejected(format!("request {} got the reply to {}", self.asked, reply.id)));
        }
        if let Some(error) = reply.error {
            return Err(JudgeError::Rejected(error));
        }
        serde_json::from_str(&line).map_err(unparsable)
    }

    /// Sends one line unchanged and returns the reply line.
    pub fn ask_line(&mut self, line: &str) -> Result<String, JudgeError> {
        let sent = self.input.as_mut().is_some_and(|input| {
            input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).is_ok()
        });
        if !sent {
            return Err(JudgeError::Exited { stderr_tail: self.stderr_tail() });
        }
        match self.answers.recv_timeout(ANSWER_WITHIN) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // A late answer would be mistaken for the answer to the next request.
                self.input = None;
                Err(JudgeError::TimedOut { stderr_tail: self.stderr_tail() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(JudgeError::Exited { stderr_tail: self.stderr_tail() }),
        }
    }

    fn stderr_tail(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        errors.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    validate: bool,
    #[serde(flatten)]
    world: &'a World,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    id: u64,
    error: Option<String>,
}

fn forward(output: impl BufRead, answers: &SyncSender<String>) {
    for line in output.lines() {
        let Ok(line) = line else { return };
        if answers.send(line).is_err() {
            return;
        }
    }
}

fn keep_tail(output: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    for line in output.lines().map_while(Result::ok) {
        let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if kept.len() == STDERR_LINES_KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}
