//! Guests of a few lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Connection, Dialer, Error, FixedDialer, Limits, Module, Reach, RoleBuilder};

use crate::{LOCALHOST, engine};

/// A module that passes bytes on unchanged, in the text format. Its configuration is its destination
/// as a fixed dialer.
pub const PLAIN: &str = include_str!("plain.wat");

const PRELUDE: &str = include_str!("prelude.wat");

/// A module of the tests' prelude, and of code in the text format for each of its functions.
/// Numbers that it reports by `$tell` reach the test when its worker ends, or by `$flush`.
#[derive(Clone)]
pub struct Guest {
    names: &'static Names,
    imports: String,
    init: String,
    connect: String,
    control: String,
    worker: String,
    more: String,
    config: Option<Vec<u8>>,
    reach: Reach,
    limits: Limits,
}

struct Names {
    imports: &'static str,
    init: &'static str,
    dial: &'static str,
    accept: &'static str,
    associate: &'static str,
    control: &'static str,
    worker: &'static str,
    more: &'static str,
}

static V1: Names = Names {
    imports: r#"
        (import "env" "water_dial_fixed" (func $dial_own (result i32)))
        (import "env" "water_dial" (func $dial (param i32 i32 i32 i32) (result i32)))
        (import "env" "water_accept" (func $accept (result i32)))"#,
    init: "watm_init_v1",
    dial: "watm_dial_v1",
    accept: "watm_accept_v1",
    associate: "watm_associate_v1",
    control: "watm_ctrlpipe_v1",
    worker: "watm_start_v1",
    more: r#"(export "watm_dial_fixed_v1" (func $dialer))"#,
};

static V0: Names = Names {
    imports: r#"
        (import "env" "host_dial" (func $dial_own (result i32)))
        (import "env" "host_accept" (func $accept (result i32)))
        (import "env" "host_defer" (func $defer))
        (import "env" "pull_config" (func $pull_config (result i32)))"#,
    init: "_water_init",
    dial: "_water_dial",
    accept: "_water_accept",
    associate: "_water_associate",
    control: "_water_cancel_with",
    worker: "_water_worker",
    more: r#"(func (export "_water_v0"))"#,
};

impl Guest {
    pub fn v1() -> Guest {
        Guest::new(&V1)
    }

    pub fn v0() -> Guest {
        Guest::new(&V0)
    }

    fn new(names: &'static Names) -> Guest {
        Guest {
            names,
            imports: names.imports.to_owned(),
            init: "(i32.const 0)".to_owned(),
            connect: "(call $dial_own)".to_owned(),
            control: "(i32.const 0)".to_owned(),
            worker: "(call $flush) (i32.const 0)".to_owned(),
            more: names.more.to_owned(),
            config: None,
            reach: Reach::none(),
            limits: Limits::for_connections(),
        }
    }

    /// Sets the code of its init function, which leaves a number.
    pub fn init(mut self, code: &str) -> Guest {
        self.init = code.to_owned();
        self
    }

    /// Sets the code that makes its connection as a dialer or fixed dialer, which leaves the value
    /// of `$net`.
    pub fn connect(mut self, code: &str) -> Guest {
        self.connect = code.to_owned();
        self
    }

    /// Sets the code that runs when it has the control pipe, which leaves a number.
    pub fn control(mut self, code: &str) -> Guest {
        self.control = code.to_owned();
        self
    }

    /// Sets the code of its worker before it sends its reports and returns 0. The locals are `$i`,
    /// `$n` and `$t`.
    pub fn work(mut self, code: &str) -> Guest {
        self.worker = format!("{code} (call $flush) (i32.const 0)");
        self
    }

    /// Sets the code of its worker, which leaves a number.
    pub fn ends(mut self, code: &str) -> Guest {
        self.worker = code.to_owned();
        self
    }

    /// Adds fields to the module.
    pub fn with(mut self, fields: &str) -> Guest {
        self.more += fields;
        self
    }

    /// Adds imports to the module, or without `env`, sets its only ones.
    pub fn importing(mut self, imports: &str) -> Guest {
        self.imports = imports.to_owned();
        self
    }

    pub fn config(mut self, config: &[u8]) -> Guest {
        self.config = Some(config.to_vec());
        self
    }

    pub fn reach(mut self, pattern: &str) -> Guest {
        self.reach = self.reach.allow(pattern).expect("a pattern");
        self
    }

    pub fn limits(mut self, limits: Limits) -> Guest {
        self.limits = limits;
        self
    }

    pub fn text(&self) -> String {
        let Guest {
            names,
            imports,
            init,
            connect,
            control,
            worker,
            more,
            ..
        } = self;
        format!(
            r#"(module {imports} {PRELUDE}
            (func (export "{}") (result i32) {init})
            (func $dialer (export "{}") (param $fd i32) (result i32)
                (global.set $caller (local.get $fd))
                (global.set $net (block (result i32) {connect}))
                (global.get $net))
            (func (export "{}") (param $fd i32) (result i32)
                (global.set $caller (local.get $fd))
                (global.set $net (call $accept))
                (global.get $net))
            (func (export "{}") (result i32)
                (global.set $caller (call $accept))
                (global.set $net (call $dial_own))
                (select (global.get $net) (i32.const 0)
                    (i32.lt_s (global.get $net) (i32.const 0))))
            (func (export "{}") (param $fd i32) (result i32)
                (global.set $control (local.get $fd)) {control})
            (func (export "{}") (result i32) (local $i i32) (local $n i32) (local $t i64)
                {worker})
            {more})"#,
            names.init, names.dial, names.accept, names.associate, names.control, names.worker
        )
    }

    pub fn module(&self) -> Module {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // A name of its own, by which log records are found.
        let name = format!("guest-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let bytes = wat::parse_str(self.text()).expect("valid text");
        engine().load(&name, &bytes).expect("loads")
    }

    /// Applies the options that such a module runs with.
    pub fn options<R>(&self, builder: RoleBuilder<R>) -> RoleBuilder<R> {
        let builder = builder
            .reach(self.reach.clone())
            .limits(self.limits.clone());
        match &self.config {
            Some(config) => builder.config(config.clone()),
            None => builder,
        }
    }

    pub fn dialer(&self) -> Dialer {
        let dialer = self.options(Dialer::builder(&self.module())).build();
        dialer.expect("a dialer")
    }

    pub fn fixed_dialer(&self) -> FixedDialer {
        let dialer = self.options(FixedDialer::builder(&self.module())).build();
        dialer.expect("a fixed dialer")
    }

    /// Connects through it as a dialer. Returns the connection and its other end.
    pub async fn try_dial(&self) -> Result<Scene, Error> {
        let listener = TcpListener::bind(LOCALHOST).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let app = self.dialer().dial(&address).await?;
        let (peer, _) = listener.accept().await.expect("accepts");
        Ok(Scene { app, peer })
    }

    pub async fn dial(&self) -> Scene {
        self.try_dial().await.expect("connects")
    }

    /// Returns the reason why it makes no connection as a dialer, without the name of the module.
    pub async fn refusal(&self) -> String {
        match self.try_dial().await {
            Ok(_) => panic!("it connects"),
            Err(error) => without_name(&error),
        }
    }
}

pub fn without_name(error: &Error) -> String {
    let text = error.to_string();
    let (_, reason) = text.split_once(": ").expect("a name first");
    reason.to_owned()
}

/// A guest at work.
pub struct Scene {
    pub app: Connection,
    pub peer: TcpStream,
}

impl Scene {
    /// Returns the next `count` numbers that the guest has reported and flushed.
    pub async fn hear(&mut self, count: usize) -> Vec<i32> {
        let mut bytes = vec![0; count * 4];
        self.app.read_exact(&mut bytes).await.expect("numbers");
        numbers(&bytes)
    }

    /// Returns all its reports, until it ends.
    pub async fn told(&mut self) -> Vec<i32> {
        let mut bytes = Vec::new();
        self.app.read_to_end(&mut bytes).await.expect("the end");
        numbers(&bytes)
    }
}

pub fn numbers(bytes: &[u8]) -> Vec<i32> {
    assert_eq!(bytes.len() % 4, 0);
    let (numbers, _) = bytes.as_chunks();
    numbers
        .iter()
        .map(|bytes| i32::from_le_bytes(*bytes))
        .collect()
}

/// Returns the reports of a v1 worker that waits for nothing.
pub fn told(code: &str) -> Vec<i32> {
    crate::run(async { Guest::v1().work(code).dial().await.told().await })
}

/// Runs a guest for each case, and compares its reports.
pub fn check(cases: &[(&str, &[i32])]) {
    for (code, expected) in cases {
        assert_eq!(told(code), *expected, "{code}");
    }
}
