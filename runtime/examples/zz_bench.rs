use std::future::poll_fn;
use std::net::SocketAddr;
use watm_runtime::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let addr: SocketAddr = a[3].parse().unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let t = std::time::Instant::now();
    let module = engine.load_file(&a[1]).unwrap();
    println!("load {:?}", t.elapsed());
    let t = std::time::Instant::now();
    let server = Server::builder(&module)
        .config(std::fs::read(&a[2]).unwrap())
        .udp("listen", addr)
        .start()
        .unwrap();
    println!("start {:?}", t.elapsed());
    let s2 = server.clone();
    std::thread::spawn(move || {
        let mut last = std::collections::BTreeMap::new();
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3));
            let st = s2.status().unwrap();
            if st.counters.get("host.bytes_received") != last.get("host.bytes_received") {
                for (k, v) in &st.counters {
                    let d = v - last.get(k).unwrap_or(&0).min(v);
                    if d != 0 {
                        print!("{k}={d} ");
                    }
                }
                println!();
                last = st.counters;
            }
        }
    });
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ls = tokio::task::LocalSet::new();
    // the pattern
    let pattern: Vec<u8> = std::fs::read("/work/scratch/h3/pattern.bin").unwrap();
    let p: &'static [u8] = Box::leak(pattern.into_boxed_slice());
    ls.block_on(&rt, async {
        while let Some(f) = server.accept().await {
            tokio::task::spawn_local(async move {
                let port = match &f.info().destination {
                    Destination::Address(a) => a.port(),
                    _ => 0,
                };
                match f {
                    Flow::Datagrams(d) => {
                        while let Ok(Some(x)) = poll_fn(|cx| d.poll_receive(cx)).await {
                            let _ = d.send(&x);
                        }
                    }
                    Flow::Stream(s) => match port {
                        9 => {
                            let mut n = 0u64;
                            loop {
                                let d = poll_fn(|cx| s.poll_read_some(cx, 1 << 18)).await.unwrap();
                                if d.is_empty() {
                                    break;
                                }
                                n += d.len() as u64;
                            }
                            let mut v = n.to_le_bytes().to_vec();
                            v.push(1);
                            s.queue_write(&v).unwrap();
                            s.close();
                        }
                        19 => {
                            let mut h = vec![];
                            while h.len() < 8 {
                                let d = poll_fn(|cx| s.poll_read_some(cx, 8)).await.unwrap();
                                h.extend(d);
                            }
                            let n = u64::from_le_bytes(h[..8].try_into().unwrap()) as usize;
                            let mut sent = 0;
                            while sent < n {
                                let o = sent % p.len();
                                let k = (p.len() - o).min(n - sent);
                                s.queue_write(&p[o..o + k]).unwrap();
                                sent += k;
                                poll_fn(|cx| s.poll_drained(cx)).await.unwrap();
                            }
                            s.shutdown_write().unwrap();
                            while let Ok(d) = poll_fn(|cx| s.poll_read_some(cx, 65536)).await {
                                if d.is_empty() {
                                    break;
                                }
                            }
                        }
                        _ => {
                            loop {
                                let Ok(d) = poll_fn(|cx| s.poll_read_some(cx, 65536)).await else {
                                    return;
                                };
                                if d.is_empty() {
                                    break;
                                }
                                s.queue_write(&d).unwrap();
                            }
                            s.close();
                        }
                    },
                }
            });
        }
    });
}
