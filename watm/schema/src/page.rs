//! Pages of the book, and the tables of fields on them. The tests of the crates with configurations call this.

use std::fs;
use std::path::Path;

use crate::{Absent, Described, Kind};

/// The variable of the environment with which tests write pages instead of comparing them.
const WRITE: &str = "WATM_WRITE_REFERENCE";

/// Compares the tables on a page with those of the code, each by its name. With [`WRITE`] in the environment, writes the
/// page.
///
/// # Panics
///
/// Panics if the page differs, cannot be read, or has no place for a table.
pub fn check(page: impl AsRef<Path>, tables: &[(&str, &[Described])]) {
    let page = page.as_ref();
    let text =
        fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let right =
        with_tables(&text, tables).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    if std::env::var_os(WRITE).is_some() {
        fs::write(page, right).expect("a page that can be written");
    } else if text != right {
        panic!(
            "{} is out of date; run `make docs-reference`",
            page.display()
        );
    }
}

/// The page with these tables, each between `<!-- fields: NAME -->` and `<!-- end -->`. The error names a table that the
/// page has no place for, or a place that no table is for.
pub fn with_tables(page: &str, tables: &[(&str, &[Described])]) -> Result<String, String> {
    let mut page = page.to_owned();
    let places = page.matches("<!-- fields: ").count();
    if places != tables.len() {
        return Err(format!("{places} places for {} tables", tables.len()));
    }
    for (name, fields) in tables {
        let begin = format!("<!-- fields: {name} -->");
        let place = page.find(&begin).and_then(|at| {
            let from = at + begin.len();
            let length = page[from..].find("<!-- end -->")?;
            Some(from..from + length)
        });
        let Some(place) = place else {
            return Err(format!("no {begin} with an <!-- end -->"));
        };
        page.replace_range(place, &format!("\n\n{}\n", table(fields)));
    }
    Ok(page)
}

/// A table in Markdown.
fn table(fields: &[Described]) -> String {
    let mut table = "| field | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (field, meaning) in fields {
        let mut kind = String::new();
        if let Kind::Table(name) = field.kind {
            kind = format!("the fields of [`{name}`](#{name})");
        } else {
            let written = field.kind.phrase(&mut kind, "`");
            written.expect("a string takes any text");
        }
        let default = match field.absent {
            Absent::Refused => "required".to_owned(),
            Absent::Number(number) => number.to_string(),
            Absent::Value(value) => format!("`{value}`"),
            Absent::Means(phrase) => phrase.to_owned(),
        };
        table += &format!("| `{}` | {kind} | {default} | {meaning} |\n", field.name);
    }
    table
}
