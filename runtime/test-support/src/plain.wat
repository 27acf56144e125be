;; A module of WATER v1 with every role, which passes bytes on as they are.
;;
;; Both ends of one direction close by themselves: the end of what one side says becomes the
;; end of what the other side hears, and the other direction lives on.
(module
  (import "env" "water_dial_fixed" (func $dial_fixed (result i32)))
  (import "env" "water_dial" (func $dial (param i32 i32 i32 i32) (result i32)))
  (import "env" "water_accept" (func $accept (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_set_flags" (func $set_flags (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $shutdown (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 4)

  ;; 0: a list of parts, and results. 64: subscriptions. 512: events. 1024: the address of a
  ;; fixed dialer. 65536: a buffer.
  (data (i32.const 256) "watm.cfg")
  (data (i32.const 272) "tcp")

  (global $left (mut i32) (i32.const -1))
  (global $right (mut i32) (i32.const -1))
  (global $control (mut i32) (i32.const -1))
  ;; Bit 1: left has ended; bit 2: right has.
  (global $ended (mut i32) (i32.const 0))

  (func (export "watm_init_v1") (result i32) (i32.const 0))
  (func (export "watm_ctrlpipe_v1") (param $fd i32) (result i32)
    (global.set $control (local.get $fd))
    (i32.const 0))
  (func (export "watm_dial_v1") (param $caller i32) (result i32)
    (global.set $left (local.get $caller))
    (global.set $right (call $dial_fixed))
    (global.get $right))
  (func (export "watm_accept_v1") (param $caller i32) (result i32)
    (global.set $left (local.get $caller))
    (global.set $right (call $accept))
    (global.get $right))
  (func (export "watm_associate_v1") (result i32)
    (global.set $left (call $accept))
    (if (i32.lt_s (global.get $left) (i32.const 0)) (then (return (global.get $left))))
    (global.set $right (call $dial_fixed))
    (if (i32.lt_s (global.get $right) (i32.const 0)) (then (return (global.get $right))))
    (i32.const 0))
  ;; The configuration is the address.
  (func (export "watm_dial_fixed_v1") (param $caller i32) (result i32)
    (local $errno i32)
    (global.set $left (local.get $caller))
    (local.set $errno (call $path_open
      (i32.const 3) (i32.const 0) (i32.const 256) (i32.const 8) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)))
    (if (local.get $errno) (then (return (i32.sub (i32.const 0) (local.get $errno)))))
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 200))
    (local.set $errno (call $fd_read
      (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 20)))
    (if (local.get $errno) (then (return (i32.sub (i32.const 0) (local.get $errno)))))
    (i32.store (i32.const 0) (i32.const 272))
    (i32.store (i32.const 4) (i32.const 3))
    (i32.store (i32.const 8) (i32.const 1024))
    (i32.store (i32.const 12) (i32.load (i32.const 20)))
    (global.set $right (call $dial (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 1)))
    (global.get $right))

  ;; Subscription number $n: to read (1) or to write (2) $fd.
  (func $subscribe (param $n i32) (param $kind i32) (param $fd i32)
    (local $at i32)
    (local.set $at (i32.add (i32.const 64) (i32.mul (local.get $n) (i32.const 48))))
    (i64.store (local.get $at) (i64.extend_i32_u (local.get $fd)))
    (i32.store8 offset=8 (local.get $at) (local.get $kind))
    (i32.store offset=16 (local.get $at) (local.get $fd)))

  ;; Write the buffer's first $len bytes; 0 or an error.
  (func $write_all (param $fd i32) (param $len i32) (result i32)
    (local $done i32) (local $errno i32)
    (block $out
      (loop $again
        (br_if $out (i32.ge_u (local.get $done) (local.get $len)))
        (i32.store (i32.const 0) (i32.add (i32.const 65536) (local.get $done)))
        (i32.store (i32.const 4) (i32.sub (local.get $len) (local.get $done)))
        (local.set $errno (call $fd_write
          (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 16)))
        (if (i32.eqz (local.get $errno))
          (then
            (local.set $done (i32.add (local.get $done) (i32.load (i32.const 16))))
            (br $again)))
        (if (i32.ne (local.get $errno) (i32.const 6))
          (then (return (i32.sub (i32.const 0) (local.get $errno)))))
        (call $subscribe (i32.const 0) (i32.const 2) (local.get $fd))
        (call $subscribe (i32.const 1) (i32.const 1) (global.get $control))
        (local.set $errno (call $poll
          (i32.const 64) (i32.const 512) (i32.const 2) (i32.const 16)))
        (if (local.get $errno) (then (return (i32.sub (i32.const 0) (local.get $errno)))))
        ;; The control pipe is alone, or second.
        (if (i32.or
              (i64.eq (i64.load (i32.const 512)) (i64.extend_i32_u (global.get $control)))
              (i32.eq (i32.load (i32.const 16)) (i32.const 2)))
          (then (return (i32.const -11))))
        (br $again)))
    (i32.const 0))

  ;; Pass on what $from has to $to; 0 or an error.
  (func $pass (param $from i32) (param $to i32) (param $bit i32) (result i32)
    (local $errno i32)
    (i32.store (i32.const 0) (i32.const 65536))
    (i32.store (i32.const 4) (i32.const 131072))
    (local.set $errno (call $fd_read
      (local.get $from) (i32.const 0) (i32.const 1) (i32.const 16)))
    (if (i32.eq (local.get $errno) (i32.const 6)) (then (return (i32.const 0))))
    (if (local.get $errno) (then (return (i32.sub (i32.const 0) (local.get $errno)))))
    (if (i32.eqz (i32.load (i32.const 16)))
      (then
        (global.set $ended (i32.or (global.get $ended) (local.get $bit)))
        (drop (call $shutdown (local.get $to) (i32.const 2)))
        (return (i32.const 0))))
    (call $write_all (local.get $to) (i32.load (i32.const 16))))

  (func (export "watm_start_v1") (result i32)
    (local $count i32) (local $errno i32) (local $n i32) (local $events i32) (local $who i32)
    (drop (call $set_flags (global.get $left) (i32.const 4)))
    (drop (call $set_flags (global.get $right) (i32.const 4)))
    (drop (call $set_flags (global.get $control) (i32.const 4)))
    (loop $again
      (if (i32.eq (global.get $ended) (i32.const 3)) (then (return (i32.const 0))))
      (local.set $count (i32.const 0))
      (if (i32.eqz (i32.and (global.get $ended) (i32.const 1)))
        (then
          (call $subscribe (local.get $count) (i32.const 1) (global.get $left))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))))
      (if (i32.eqz (i32.and (global.get $ended) (i32.const 2)))
        (then
          (call $subscribe (local.get $count) (i32.const 1) (global.get $right))
          (local.set $count (i32.add (local.get $count) (i32.const 1)))))
      (call $subscribe (local.get $count) (i32.const 1) (global.get $control))
      (local.set $errno (call $poll (i32.const 64) (i32.const 512)
        (i32.add (local.get $count) (i32.const 1)) (i32.const 16)))
      (if (local.get $errno) (then (return (i32.sub (i32.const 0) (local.get $errno)))))
      (local.set $events (i32.load (i32.const 16)))
      (local.set $n (i32.const 0))
      ;; Who is ready, as bits: what is read into memory does not matter then.
      (local.set $who (i32.const 0))
      (block $out
        (loop $next
          (br_if $out (i32.ge_u (local.get $n) (local.get $events)))
          (local.set $who (i32.or (local.get $who)
            (i32.shl (i32.const 1)
              (i32.wrap_i64 (i64.load
                (i32.add (i32.const 512) (i32.mul (local.get $n) (i32.const 32))))))))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br $next)))
      (if (i32.and (local.get $who) (i32.shl (i32.const 1) (global.get $control)))
        (then (return (i32.const -11))))
      (if (i32.and (local.get $who) (i32.shl (i32.const 1) (global.get $left)))
        (then
          (local.set $errno (call $pass (global.get $left) (global.get $right) (i32.const 1)))
          (if (local.get $errno) (then (return (local.get $errno))))))
      (if (i32.and (local.get $who) (i32.shl (i32.const 1) (global.get $right)))
        (then
          (local.set $errno (call $pass (global.get $right) (global.get $left) (i32.const 2)))
          (if (local.get $errno) (then (return (local.get $errno))))))
      (br $again))
    (unreachable)))
