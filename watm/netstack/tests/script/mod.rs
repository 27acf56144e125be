//! Scripts of TCP: a text with a time, a segment or an action on each line, and a runner that
//! compares it with what the stack does. `scripts/README.md` describes the format.

mod connection;
mod fields;
mod receiver;
mod runner;
mod segment;
mod statements;
mod values;

/// The reason why a script does not hold.
#[derive(Debug)]
pub struct Failure {
    /// The line, counted from 1.
    pub line: usize,
    pub reason: String,
    /// The last packets before it.
    pub trace: Vec<String>,
}

/// Runs a script.
pub fn run(text: &str) -> Result<(), Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let mut runner = runner::Runner::new();
    let outcome = lines
        .first()
        .filter(|line| line.starts_with("# "))
        .ok_or_else(|| "the first line must be a comment that names the RFC or the bug".to_string())
        .and_then(|_| runner.run(&lines, 0));
    let outcome = outcome.and_then(|()| {
        runner.line = lines.len();
        runner.end()
    });
    outcome.map_err(|reason| Failure {
        line: runner.line,
        reason,
        trace: runner.trace(),
    })
}
