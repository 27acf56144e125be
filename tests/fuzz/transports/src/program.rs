//! The input, read as a program.

/// Most steps of a program: enough for every state that a few connections have, and few
/// enough for a thousand programs a second.
const MAX_STEPS: usize = 128;

/// Reads numbers and bytes off the front of the input. Past its end, everything is zero.
/// The corpus depends on how: what changes it makes the committed inputs mean something
/// else.
pub struct Program<'a> {
    rest: &'a [u8],
    steps: usize,
}

impl<'a> Program<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Program {
            rest: input,
            steps: 0,
        }
    }

    /// The next step, one of `kinds`; `None` at the end.
    pub fn step(&mut self, kinds: u8) -> Option<u8> {
        if self.rest.is_empty() || self.steps == MAX_STEPS {
            return None;
        }
        self.steps += 1;
        Some(self.byte() % kinds)
    }

    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    /// Two bytes, the high one first.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A number below `bound`, which is at least 1: of one byte if that is enough.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = if bound <= 256 {
            u16::from(self.byte())
        } else {
            self.word()
        };
        usize::from(number) % bound
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// At most 255 bytes of the input, after their number.
    pub fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        bytes
    }

    /// Change a few bytes of `data`, and sometimes its length.
    pub fn damage(&mut self, data: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if !data.is_empty() {
                let at = self.below(data.len());
                data[at] = self.byte();
            }
        }
        match self.below(8) {
            0 => {
                let length = self.below(data.len() + 1);
                data.truncate(length);
            }
            1 => data.extend_from_slice(self.bytes()),
            _ => {}
        }
    }
}
