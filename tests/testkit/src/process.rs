//! Runs programs that never outlive the test that started them.
//!
//! A destructor does not run when a test binary exits with a shared control plane in a static, and nothing runs when it
//! is killed. So a small shell script starts each program and holds one end of a pipe. When the other end closes, for
//! any reason, the shell stops the program by its process id. The shell exits with the program, so that an early exit
//! is noticed at once.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The poll interval while waiting for a program.
const POLL_EVERY: Duration = Duration::from_millis(20);

const KEEPER: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
echo "$program" > "$BRIDGER_PID_FILE"
{ cat <&3 >/dev/null; kill -TERM "$program"; sleep 5; kill -KILL "$program"; } 2>/dev/null &
keeper=$!
exec 3<&-
wait "$program"
status=$?
kill "$keeper" 2>/dev/null
exit "$status"
"#;

#[derive(Debug)]
pub struct Process {
    name: String,
    shell: Child,
    log: PathBuf,
    pid_file: PathBuf,
}

impl Process {
    /// Starts a program with its output in `folder/name.log`.
    pub fn start(folder: &Path, name: &str, program: &Path, arguments: &[String]) -> io::Result<Process> {
        Process::start_with(folder, name, program, arguments, &[])
    }

    /// As [`Process::start`], with additional environment variables.
    pub fn start_with(
        folder: &Path,
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
    ) -> io::Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let pid_file = folder.join(format!("{name}.pid"));
        let output = File::options().create(true).append(true).open(&log)?;
        let _ = std::fs::remove_file(&pid_file);
        let shell = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .env("BRIDGER_PID_FILE", &pid_file)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Process { name: name.to_owned(), shell, log, pid_file })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of the program itself, once it has started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok()
    }

    /// The exit status, if it has exited.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.shell.try_wait().ok().flatten()
    }

    /// Waits until an attempt succeeds. Fails if the program exits before that, or after `within`.
    pub async fn until<T>(
        &mut self,
        within: Duration,
        mut attempt: impl AsyncFnMut(&Process) -> Option<T>,
    ) -> Result<T> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            // Checked before the attempt: output before the exit still counts.
            let exited = self.exited();
            if let Some(value) = attempt(self).await {
                return Ok(value);
            }
            if let Some(status) = exited {
                bail!("{} exited ({status}); the end of its log:\n{}", self.name, self.log_tail());
            }
            if tokio::time::Instant::now() > deadline {
                let seconds = within.as_secs();
                bail!("{} was not ready within {seconds} s; the end of its log:\n{}", self.name, self.log_tail());
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Waits until `read` returns a value for its output.
    pub async fn prints<T>(&mut self, within: Duration, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.until(within, async |process| read(&process.log())).await
    }

    /// Its complete output.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its output, for an error message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Like `kill -9`: the program cannot clean up.
    pub fn kill_hard(&mut self) {
        if self.exited().is_none()
            && let Some(pid) = self.pid()
        {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        self.stop();
    }

    /// Stops it gracefully, and waits until it has exited.
    pub fn stop(&mut self) {
        drop(self.shell.stdin.take());
        // The shell kills it after 5 s, so this always ends.
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.exited().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}
