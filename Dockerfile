# An image with one static binary and its licences, and nothing else: no shell, no libraries, no writable files.
# e2e/image/run reads target and command from here, builds the binary in the same way, and runs it alone.
#
#   docker build -t registry.example.com/berth:0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .

# The version in rust-toolchain.toml; a test compares them. By digest, so that a tag that is moved changes nothing here.
FROM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
# ring compiles some C and assembly; musl-tools has the compiler for a static C library.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends musl-tools \
 && rm -rf /var/lib/apt/lists/* \
 && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# Function names are for profiling; a static image is for running.
ENV CARGO_PROFILE_RELEASE_STRIP=symbols
# The same sources give the same bytes, wherever they are: no paths of this machine in messages. e2e/image/twice checks that.
ENV RUSTFLAGS="--remap-path-prefix=/src=/berth --remap-path-prefix=/usr/local/cargo=/cargo"
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package berth --target "$(uname -m)-unknown-linux-musl" \
 && cp "target/$(uname -m)-unknown-linux-musl/release/berth" /berth \
 && deploy/notices "$(uname -m)-unknown-linux-musl" >/THIRD-PARTY-NOTICES
# Under these names it acts as the Kubernetes component that it replaces: manifests with the program name need not change.
RUN mkdir -p /names/usr/local/bin \
 && ln -s /berth /names/csi-provisioner \
 && ln -s /berth /names/usr/local/bin/kube-scheduler

FROM scratch AS berth
ARG REVISION=unknown
LABEL org.opencontainers.image.title="berth" \
      org.opencontainers.image.description="Puts Kubernetes pods where their storage can be, and storage where the pods can run" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /berth /THIRD-PARTY-NOTICES /
COPY LICENSE /LICENSE
COPY --from=build /names/ /
# By number, so that the kubelet can verify that it is not root.
USER 65532:65532
ENTRYPOINT ["/berth"]

# Replaces the external-provisioner's image, with the arguments of its container: docker build --target csi-provisioner.
# Sockets of drivers belong to root.
FROM berth AS csi-provisioner
USER 0:0
ENTRYPOINT ["/csi-provisioner"]

FROM berth
