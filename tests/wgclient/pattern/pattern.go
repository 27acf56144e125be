// Package pattern is the content of every transfer in tests and measurements: a
// pseudo-random block, repeated. The block's length is prime, so that a piece
// that is lost, doubled or moved shifts the content against any power of two
// and any segment size. tests/support/watm_test_support/pattern.py makes the same.
package pattern

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const period = 65521

// Longest is the size of the longest piece that At returns, in bytes.
const Longest = 2 * period

// Three periods: any piece of up to two of them, at any phase, is one slice.
var repeated = bytes.Repeat(block(), 3)

func block() []byte {
	block := make([]byte, 0, period+8)
	state := uint64(0x9E3779B97F4A7C15) // xorshift64*
	for len(block) < period {
		state ^= state >> 12
		state ^= state << 25
		state ^= state >> 27
		block = binary.LittleEndian.AppendUint64(block, state*0x2545F4914F6CDD1D)
	}
	return block[:period]
}

// At is the content from offset on, up to size bytes, at most Longest. The
// caller must not write to it.
func At(offset uint64, size int) []byte {
	start := int(offset % period)
	return repeated[start : start+min(size, Longest)]
}

// Check compares data with the content at offset.
func Check(data []byte, offset uint64) error {
	for len(data) > 0 {
		want := At(offset, len(data))
		if !bytes.Equal(data[:len(want)], want) {
			return fmt.Errorf("the content differs within %d bytes from offset %d", len(want), offset)
		}
		data = data[len(want):]
		offset += uint64(len(want))
	}
	return nil
}
