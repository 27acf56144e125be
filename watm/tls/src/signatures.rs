//! Verification of signatures in handshakes, the same for clients and servers. Used by `clients`
//! and `servers`.

/// Defines the methods of rustls's two verifiers that ask the provider `self.provider`.
macro_rules! signatures_by_provider {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
                .map_err(|error| crate::failure::explained(error, [certificate]))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
                .map_err(|error| crate::failure::explained(error, [certificate]))
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let algorithms = &self.provider.signature_verification_algorithms;
            algorithms.supported_schemes()
        }
    };
}

pub(crate) use signatures_by_provider;
