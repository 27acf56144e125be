//! The models by name.

mod datagrams;
mod messages;
mod signals;
mod streams;
mod tokens;

pub(crate) const ALL: &[(&str, fn())] = &[
    (
        "tokens-one-driver-two-notifiers",
        tokens::every_event_is_handled,
    ),
    ("tokens-slot", tokens::who_registers_is_woken),
    ("signals-one", signals::every_event_is_handled),
    ("signals-two", signals::every_signal_is_told),
    (
        "messages-in-order",
        messages::messages_come_in_order_and_then_the_end_once,
    ),
    ("messages-full", messages::who_waits_for_room_is_woken),
    (
        "messages-close",
        messages::who_waits_for_room_is_woken_by_the_end,
    ),
    (
        "messages-racing-close",
        messages::a_letter_is_delivered_or_goes_with_the_mailbox,
    ),
    (
        "streams-to-the-module",
        streams::the_module_reads_all_and_then_the_end,
    ),
    (
        "streams-to-the-application",
        streams::the_application_reads_all_and_then_the_end,
    ),
    ("streams-full", streams::the_application_is_told_of_room),
    (
        "streams-abort",
        streams::an_abort_meets_the_end_of_the_module,
    ),
    ("streams-watched", streams::who_watches_a_flow_sees_it_go),
    (
        "datagrams-to-the-module",
        datagrams::the_module_receives_all_and_then_the_end,
    ),
    (
        "datagrams-to-the-application",
        datagrams::the_application_receives_all_and_then_the_end,
    ),
    ("permits", streams::no_more_flows_than_allowed),
];
