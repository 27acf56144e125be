//! Turns a transport built for wasm32-wasip1 into a component.

fn main() {}
