//! The judge as a child process: one line of JSON to it, one line back.

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

/// The first world of a configuration takes some 10 ms, the others about 1 ms; a machine under load gets ample time.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const STDERR_LINES_KEPT: usize = 30;

#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error("starting {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("the judge cannot judge this: {0}")]
    Refused(String),
    #[error("the judge did not answer within {} s; its last words:\n{last_words}", ANSWER_WITHIN.as_secs())]
    TimedOut { last_words: String },
    #[error("the judge has ended; its last words:\n{last_words}")]
    Ended { last_words: String },
    #[error("the judge's answer is not understood: {source}: {line}")]
    NotUnderstood { line: String, source: serde_json::Error },
}

/// A running judge. Ends with the value, and with this process, because its input ends then.
#[derive(Debug)]
pub struct Judge {
    process: Child,
    /// Taken when it is told to end.
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    errors: Arc<Mutex<VecDeque<String>>>,
    asked: u64,
}

impl Judge {
    /// Starts the judge among the test peers.
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
        // One answer per question, so one place is enough.
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

    /// What kube-scheduler's plugins say about the world.
    pub fn ask(&mut self, world: &World) -> Result<Answer, JudgeError> {
        self.ask_request(world, false)
    }

    /// The same, and what the API server's validation says against the world, in `Answer::invalid`.
    pub fn ask_and_validate(&mut self, world: &World) -> Result<Answer, JudgeError> {
        self.ask_request(world, true)
    }

    fn ask_request(&mut self, world: &World, validate: bool) -> Result<Answer, JudgeError> {
        self.asked += 1;
        let request = Request { id: self.asked, validate, world };
        let request = serde_json::to_string(&request).map_err(|error| JudgeError::Refused(error.to_string()))?;
        let line = self.ask_line(&request)?;
        let not_understood = |source| JudgeError::NotUnderstood { line: line.clone(), source };
        let reply: Reply = serde_json::from_str(&line).map_err(not_understood)?;
        if reply.id != self.asked {
            // Never seen; an answer to another question must not pass for this one.
            return Err(JudgeError::Refused(format!("question {} was answered as {}", self.asked, reply.id)));
        }
        if let Some(error) = reply.error {
            return Err(JudgeError::Refused(error));
        }
        serde_json::from_str(&line).map_err(not_understood)
    }

    /// One line as it is, and the line that comes back.
    pub fn ask_line(&mut self, line: &str) -> Result<String, JudgeError> {
        let sent = self.input.as_mut().is_some_and(|input| {
            input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).is_ok()
        });
        if !sent {
            return Err(JudgeError::Ended { last_words: self.last_words() });
        }
        match self.answers.recv_timeout(ANSWER_WITHIN) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // What comes later would be taken for the answer to the next question.
                self.input = None;
                Err(JudgeError::TimedOut { last_words: self.last_words() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(JudgeError::Ended { last_words: self.last_words() }),
        }
    }

    fn last_words(&self) -> String {
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
