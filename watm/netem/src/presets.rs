//! Networks by name, in the words of `words`.

/// A network that has a name.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// The word.
    pub name: &'static str,
    /// The network, for people.
    pub title: &'static str,
    /// The words of packets that the device behind it sends.
    pub up: &'static str,
    /// The words of packets that it receives.
    pub down: &'static str,
}

/// The networks that have names. Each delay is half of a round trip.
pub const PRESETS: [Preset; 8] = [
    Preset {
        name: "edge",
        title: "EDGE: 240 kbit/s down, 200 kbit/s up, 400 ms",
        up: "delay=200ms jitter=40ms correlation=50% loss=0.5% rate=200kbit",
        down: "delay=200ms jitter=40ms correlation=50% loss=0.5% rate=240kbit",
    },
    Preset {
        name: "3g",
        title: "3G: 1.6 Mbit/s down, 750 kbit/s up, 150 ms",
        up: "delay=75ms jitter=10ms correlation=25% rate=750kbit",
        down: "delay=75ms jitter=10ms correlation=25% rate=1.6mbit",
    },
    Preset {
        name: "4g",
        title: "4G: 20 Mbit/s down, 8 Mbit/s up, 50 ms",
        up: "delay=25ms jitter=5ms correlation=25% rate=8mbit queue=200",
        down: "delay=25ms jitter=5ms correlation=25% rate=20mbit queue=400",
    },
    Preset {
        name: "dsl",
        title: "DSL: 8 Mbit/s down, 1 Mbit/s up, 30 ms",
        up: "delay=15ms rate=1mbit",
        down: "delay=15ms rate=8mbit queue=200",
    },
    Preset {
        name: "wifi",
        title: "Weak Wi-Fi: 10 Mbit/s, 10 ms, bursts of loss",
        up: "delay=5ms jitter=4ms rate=10mbit burst_enter=0.5% burst_leave=25% burst_loss=60%",
        down: "delay=5ms jitter=4ms rate=10mbit burst_enter=0.5% burst_leave=25% burst_loss=60%",
    },
    Preset {
        name: "train",
        title: "Train: 5 Mbit/s down, 2 Mbit/s up, 160 ms, outages",
        up: "delay=80ms jitter=40ms correlation=75% rate=2mbit burst_enter=0.1% burst_leave=2%",
        down: "delay=80ms jitter=40ms correlation=75% rate=5mbit burst_enter=0.1% burst_leave=2%",
    },
    Preset {
        name: "satellite",
        title: "Satellite: 25 Mbit/s down, 3 Mbit/s up, 600 ms",
        up: "delay=300ms jitter=5ms loss=0.2% rate=3mbit queue=200",
        down: "delay=300ms jitter=5ms loss=0.2% rate=25mbit queue=1000",
    },
    Preset {
        name: "offline",
        title: "Offline: all packets are lost",
        up: "loss=100%",
        down: "loss=100%",
    },
];
