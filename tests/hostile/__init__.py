"""`make hostile`: modules that do nothing but harm, beside one that behaves."""
