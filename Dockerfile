# The same image as `cargo xtask image` writes, for those who have a container engine: docker build -t bridger .
FROM rust:1.95-slim-bookworm AS build
WORKDIR /bridger
COPY . .
ARG REVISION=unknown
# The C library is linked in, so that the program runs in an empty file system. With --target the flag is not used for
# build scripts and macros.
RUN target="$(rustc --print host-tuple)" \
    && BRIDGER_REVISION="$REVISION" RUSTFLAGS="-C target-feature=+crt-static" \
       cargo build --locked --profile dist -p bridger --bin bridger --target "$target" \
    && install -D -m 0755 "target/$target/dist/bridger" /image/bridger \
    && install -d -m 1777 /image/tmp

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/bridger"]
