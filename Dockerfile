# All of Quorate is one static binary: no shell, no libraries, no root. Build the binary first,
# so that nothing has to be pulled:
#
#   make image                                                  # with buildah
#   make build && docker build -t quorate -f Dockerfile .build/bin
FROM scratch
LABEL org.opencontainers.image.title="quorate" org.opencontainers.image.licenses="Apache-2.0"
COPY quorate /quorate
# A number, so that a kubelet can tell that it is not root. etcd-druid's containers have the
# same one, which may read the certificates.
USER 65532:65532
ENTRYPOINT ["/quorate"]
