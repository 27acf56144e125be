//! One guest: its instantiation and its calls. `runner` makes it, and `worker` runs it to its end.

use wasmtime::{
    Instance as WasmInstance, Store, TypedFunc, WasmBacktrace, WasmParams, WasmResults,
};

use super::Prepared;
use super::errno::Errno;
use super::preview1::Exit;
use super::state::State;
use crate::Error;
use watm_engine::log::MAX_MESSAGE;
use watm_policy::water_abi::Abi;
use watm_types::one_line;

/// A guest, which serves one connection.
pub(super) struct Instance {
    store: Store<State>,
    instance: WasmInstance,
    abi: &'static Abi,
}

/// The reason why a guest's call did not return.
pub(super) enum Stop {
    Exit(i32),
    Trap(String),
}

impl Instance {
    /// Instantiates the module and runs its set-up functions.
    pub(super) async fn new(prepared: &Prepared, state: State) -> Result<Instance, Stop> {
        let cpu = state.cpu.clone();
        let mut store = Store::new(prepared.pre.module().engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.epoch_deadline_callback(move |mut store| {
            store.data_mut().notice_reset();
            Ok(cpu.tick())
        });
        store.set_epoch_deadline(1);
        let cpu = store.data().cpu.clone();
        let instantiated = cpu
            .metered(prepared.pre.instantiate_async(&mut store))
            .await;
        let instance = match instantiated {
            Ok(instance) => instance,
            Err(error) => return Err(stop(&mut store, &error)),
        };
        let mut instance = Instance {
            store,
            instance,
            abi: prepared.abi,
        };
        instance.set_up().await?;
        Ok(instance)
    }

    pub(super) fn state(&mut self) -> &mut State {
        self.store.data_mut()
    }

    /// Calls a function of the module that returns a number.
    pub(super) async fn call<Params>(&mut self, name: &str, params: Params) -> Result<i32, Stop>
    where
        Params: WasmParams + Sync,
    {
        let function = self.function::<Params, i32>(name)?;
        self.run(function, params).await
    }

    /// Returns the reason for a failure, if `result` of a function of WATER is one. Quotes the last
    /// line that the module printed on its standard error: it has no other way to explain itself.
    pub(super) fn failure(&mut self, name: &str, result: i32) -> Option<String> {
        let errno = Errno::of_result(result)?.name();
        let reason = format!("{name} returned {result} ({errno})");
        Some(with_last_words(self.state(), reason))
    }

    /// Serves the connection until its end.
    pub(super) async fn work(&mut self) -> Result<i32, Stop> {
        self.call(self.abi.worker, ()).await
    }

    async fn set_up(&mut self) -> Result<(), Stop> {
        for name in ["_start", "_initialize"] {
            if self.instance.get_func(&mut self.store, name).is_none() {
                continue;
            }
            let function = self.function::<(), ()>(name)?;
            return match self.run(function, ()).await {
                // The runtimes of some languages return from `main` this way.
                Err(Stop::Exit(0)) => Ok(()),
                result => result,
            };
        }
        Ok(())
    }

    fn function<Params, Results>(&mut self, name: &str) -> Result<TypedFunc<Params, Results>, Stop>
    where
        Params: WasmParams,
        Results: WasmResults,
    {
        self.instance
            .get_typed_func(&mut self.store, name)
            .map_err(|error| Stop::Trap(format!("{name}: {error}")))
    }

    async fn run<Params, Results>(
        &mut self,
        function: TypedFunc<Params, Results>,
        params: Params,
    ) -> Result<Results, Stop>
    where
        Params: WasmParams + Sync,
        Results: WasmResults + Sync,
    {
        self.store.set_epoch_deadline(1);
        let cpu = self.store.data().cpu.clone();
        cpu.waits();
        let called = cpu
            .metered(function.call_async(&mut self.store, params))
            .await;
        called.map_err(|error| stop(&mut self.store, &error))
    }
}

impl Stop {
    /// Describes the stop, in words that follow the name of the called function.
    pub(super) fn reason(&self) -> String {
        match self {
            Stop::Exit(code) => format!("called proc_exit({code})"),
            Stop::Trap(reason) => reason.clone(),
        }
    }

    pub(super) fn into_error(self, module: &str) -> Error {
        Error::Trap {
            module: module.to_owned(),
            reason: self.reason(),
        }
    }
}

fn stop(store: &mut Store<State>, error: &wasmtime::Error) -> Stop {
    if let Some(Exit(code)) = error.downcast_ref() {
        return Stop::Exit(*code);
    }
    let state = store.data_mut();
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        // Its functions have the names that the module gives them.
        let backtrace = one_line(&backtrace.to_string(), MAX_MESSAGE);
        tracing::debug!(target: "watm::server", "{backtrace}");
    }
    Stop::Trap(if let Some(limit) = state.cpu.overrun() {
        format!("used more than {limit:?} of CPU time without waiting")
    } else if let Some(limit) = state.limiter.refused() {
        format!(
            "ran out of memory (limit {} MiB): {}",
            limit >> 20,
            error.root_cause()
        )
    } else {
        with_last_words(state, error.root_cause().to_string())
    })
}

/// Appends the last line that the module printed on its standard error to `reason`.
pub(super) fn with_last_words(state: &mut State, reason: String) -> String {
    match state.output.last_error() {
        Some(said) => format!("{reason}; the module's last output: {said}"),
        None => reason,
    }
}
