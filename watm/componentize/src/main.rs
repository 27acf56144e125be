//! `watm-componentize IN.wasm OUT.wasm`: turns a transport built for wasm32-wasip1 into a
//! component.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [input, output] = arguments.as_slice() else {
        eprintln!("usage: watm-componentize IN.wasm OUT.wasm");
        return ExitCode::from(2);
    };
    match run(Path::new(input), Path::new(output)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("watm-componentize: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(input: &Path, output: &Path) -> Result<String> {
    let module = fs::read(input).with_context(|| input.display().to_string())?;
    let component =
        watm_componentize::componentize(&module).with_context(|| input.display().to_string())?;
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(output, &component).with_context(|| output.display().to_string())?;
    Ok(format!(
        "{}: {} bytes (core module: {})",
        output.display(),
        component.len(),
        module.len()
    ))
}
