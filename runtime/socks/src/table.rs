//! Flows of datagrams, one for each key: dialled with the first datagram, ended when idle.
//! `association` and `forward` use it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::{Counters, Datagrams, Destination, Dial, Limits, Refusal};

pub(crate) struct Table<K, D> {
    dial: Arc<D>,
    limits: Limits,
    counters: Arc<Counters>,
    flows: HashMap<K, Flow>,
    tasks: JoinSet<(K, u64, Result<(), Refusal>)>,
    /// The number of the latest flow, which tells flows of one key apart.
    last: u64,
}

struct Flow {
    number: u64,
    queue: mpsc::Sender<Vec<u8>>,
    used: Instant,
    task: AbortHandle,
}

impl<K: Hash + Eq + Clone + Send + 'static, D: Dial> Table<K, D> {
    pub(crate) fn new(dial: Arc<D>, limits: Limits, counters: Arc<Counters>) -> Table<K, D> {
        Table {
            dial,
            limits,
            counters,
            flows: HashMap::new(),
            tasks: JoinSet::new(),
            last: 0,
        }
    }

    /// Forwards a datagram in the flow of `key`, or in a new one to `to`, whose answers go to
    /// `back`.
    pub(crate) fn pass(
        &mut self,
        key: &K,
        to: &Destination,
        datagram: &[u8],
        back: impl Fn(&[u8]) + Send + Sync + 'static,
    ) {
        if !self.flows.contains_key(key) {
            self.open(key, to, back);
        }
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        flow.used = Instant::now();
        match flow.queue.try_send(datagram.to_vec()) {
            Ok(()) => self.counters.datagrams_out.add(),
            Err(_) => self.counters.dropped_full.add(),
        }
    }

    /// Waits for a flow to end, and removes it. Fails with the reason if it could not be opened.
    /// Waits forever if there is no flow.
    pub(crate) async fn ended(&mut self) -> Result<(), (Destination, Refusal)>
    where
        K: Into<Destination>,
    {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            // It was replaced by another.
            Some(Err(_)) => Ok(()),
            Some(Ok((key, number, result))) => {
                if self
                    .flows
                    .get(&key)
                    .is_some_and(|flow| flow.number == number)
                {
                    self.flows.remove(&key);
                }
                result.map_err(|refusal| (key.into(), refusal))
            }
        }
    }

    fn open(&mut self, key: &K, to: &Destination, back: impl Fn(&[u8]) + Send + Sync + 'static) {
        if self.flows.len() >= self.limits.flows {
            let idle = self.flows.iter().min_by_key(|(_, flow)| flow.used);
            if let Some(key) = idle.map(|(key, _)| key.clone())
                && let Some(flow) = self.flows.remove(&key)
            {
                flow.task.abort();
            }
        }
        self.last += 1;
        let (queue, waiting) = mpsc::channel(self.limits.queue);
        let (dial, to, idle) = (self.dial.clone(), to.clone(), self.limits.idle);
        let (key, number, counters) = (key.clone(), self.last, self.counters.clone());
        let named = key.clone();
        let task = self.tasks.spawn(async move {
            let carried = async {
                let flow = dial.datagrams(&to).await?;
                carry(flow, waiting, back, idle, &counters).await;
                Ok(())
            };
            let result = carried.await;
            if result.is_err() {
                counters.failed.add();
            }
            (named, number, result)
        });
        let flow = Flow {
            number,
            queue,
            used: Instant::now(),
            task,
        };
        self.flows.insert(key, flow);
    }
}

/// Carries datagrams until the flow ends, or is idle for too long.
async fn carry(
    flow: impl Datagrams,
    mut waiting: mpsc::Receiver<Vec<u8>>,
    back: impl Fn(&[u8]),
    idle: std::time::Duration,
    counters: &Counters,
) {
    loop {
        tokio::select! {
            datagram = waiting.recv() => {
                let Some(datagram) = datagram else { return };
                match flow.send(&datagram) {
                    Ok(true) => {}
                    Ok(false) => counters.dropped_full.add(),
                    Err(_) => return,
                }
            }
            received = flow.receive() => match received {
                Ok(Some(datagram)) => {
                    counters.datagrams_in.add();
                    back(&datagram);
                }
                Ok(None) | Err(_) => return,
            },
            () = sleep(idle) => return,
        }
    }
}
