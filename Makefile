# For those who expect make; each target calls the same command that the documentation names.
PREFIX ?= /usr/local

.PHONY: build image install test

build:
	cargo build --locked --profile dist -p bridger

image:
	cargo xtask image

install: build
	install -D -m 0755 $(or $(CARGO_TARGET_DIR),target)/dist/bridger $(DESTDIR)$(PREFIX)/bin/bridger

test:
	cargo xtask test
