//! The text format of the log.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::PROGRAM;

/// Formats a record as one line: time, level, target, message, and fields. Records of the
/// [program](PROGRAM) are for people who wait for them, and consist of the message alone:
/// announcements unchanged, warnings and errors after `watm: `.
#[derive(Default)]
pub(super) struct Text(Format);

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().target() != PROGRAM {
            return self.0.format_event(context, writer, event);
        }
        if *event.metadata().level() <= Level::WARN {
            writer.write_str("watm: ")?;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        writeln!(writer, "{}", message.0)
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
