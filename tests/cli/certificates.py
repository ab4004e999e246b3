"""Certificates for tests, made by the openssl command."""
import subprocess


def make_certificate(folder, name, subject="localhost", password=None, names="DNS:localhost,IP:127.0.0.1"):
    """Paths of a certificate that signs itself, and of its key."""
    certificate, key = f"{folder}/{name}.crt", f"{folder}/{name}.key"
    protection = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
                    "-subj", f"/CN={subject}", "-addext", f"subjectAltName={names}",
                    "-keyout", key, "-out", certificate, *protection], check=True, capture_output=True)
    return certificate, key
